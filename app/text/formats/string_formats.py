"""String formats as regular expressions: narrower than their standards, never wider.

llguidance has some of them, but a 29 February in every year and a leap second in every minute.
"""

_YEAR = "(?:[0-9]{3}[1-9]|[0-9]{2}[1-9]0|[0-9][1-9]00|[1-9]000)"
_DIVISIBLE = "(?:0[48]|[2468][048]|[13579][26])"  # by four, two digits, not 00
_LEAP = f"(?:[0-9]{{2}}{_DIVISIBLE}|{_DIVISIBLE}00)"
_DATE = (
    f"(?:{_YEAR}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])"
    f"|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|02-(?:0[1-9]|1[0-9]|2[0-8]))|{_LEAP}-02-29)"
)
_FRACTION = r"(?:\.[0-9]{1,9})?"
_HOUR = "(?:[01][0-9]|2[0-3])"
_TIME = (
    f"(?:{_HOUR}:[0-5][0-9]:[0-5][0-9]{_FRACTION}(?:Z|[+\\-]{_HOUR}:[0-5][0-9])"
    f"|23:59:60{_FRACTION}(?:Z|[+\\-]00:00))"
)
_ATOM = r"[a-zA-Z0-9!#$%&'*+/=?^_`{|}~\-]"
_LABEL = "[a-zA-Z0-9](?:-?[a-zA-Z0-9]){0,30}"
_SHORT = "[a-zA-Z0-9](?:-?[a-zA-Z0-9]){0,14}"
_HEX = "[0-9a-fA-F]"
_BYTE = "(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
_POINTER = "(?:/(?:[^~/]|~[01])*)*"

# What is not listed here is llguidance's own, or else no format of any draft: then it says nothing.
FORMATS = {
    "date": _DATE,
    "time": _TIME,
    "date-time": f"{_DATE}T{_TIME}",
    "email": (
        rf"(?:{_ATOM}{{1,64}}|{_ATOM}{{1,20}}(?:\.{_ATOM}{{1,20}}){{1,2}})"
        rf"@{_LABEL}(?:\.{_SHORT}){{0,3}}\.[a-zA-Z]{{2,12}}"
    ),
    "hostname": rf"(?:{_LABEL}(?:\.{_LABEL}){{0,3}}|{_SHORT}(?:\.{_SHORT}){{0,7}})",
    "ipv4": rf"{_BYTE}(?:\.{_BYTE}){{3}}",
    "uuid": f"{_HEX}{{8}}-{_HEX}{{4}}-{_HEX}{{4}}-{_HEX}{{4}}-{_HEX}{{12}}",
    "json-pointer": _POINTER,
    "relative-json-pointer": f"(?:0|[1-9][0-9]*)(?:#|{_POINTER})",
}
LIBRARY = ("duration", "ipv6", "uri")
UNSUPPORTED = (
    "idn-email", "idn-hostname", "iri", "iri-reference", "regex", "uri-reference", "uri-template",
)  # fmt: skip
