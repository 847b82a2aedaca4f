"""Words of JSON Schema about any value, texts, numbers and lists: see ``schema_words.py``."""

import json
import math
from collections.abc import Mapping
from itertools import permutations
from typing import Any

from app.text.formats.kinds import TYPES, listed_values
from app.text.formats.negation import WholePattern, negated
from app.text.formats.pattern import whole_patterns
from app.text.formats.schema_disjoint import mutually_exclusive
from app.text.formats.schema_word import Found, Words
from engine.errors import InvalidRequest

_LARGEST = 2**63 - 1
MOST_DIFFERENT = 4  # values of items that must differ: 65 lists; five have 326

# String formats as regular expressions: narrower than their standards, never wider. llguidance has some of
# them, but a 29 February in every year and a leap second in every minute.
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


class ValueWords(Words):
    """One method for each word, or for several that are alike."""

    def type(self, word: str, value: Any) -> None:
        """One type or several."""
        kinds = [value] if isinstance(value, str) else value
        if not isinstance(kinds, list) or not kinds or any(kind not in TYPES for kind in kinds):
            raise InvalidRequest(
                f"'type' at {self.place} is {value!r}; it may be {', '.join(TYPES)}"
            )
        self.found[word] = value

    def values(self, word: str, value: Any) -> None:
        """The values that are allowed."""
        values = value if word == "enum" else [value]
        if not isinstance(values, list):
            raise InvalidRequest(f"'enum' at {self.place} must be a list")
        if any(isinstance(one, int) and not _is_exact(one) for one in values):
            raise self.refusal(word, f"has a number above {2**53} that cannot be held exactly")
        self.found[word] = value

    def reference(self, word: str, value: Any) -> None:
        """A schema elsewhere in the document."""
        self.found[word] = self.document.name_of(value, self.place)

    def several(self, word: str, value: Any) -> None:
        """All, any or one of several schemas."""
        if not isinstance(value, list) or not value:
            raise InvalidRequest(
                f"{word!r} at {self.place} must be a list with at least one schema"
            )
        options = [self.inner(one, word, str(n)) for n, one in enumerate(value)]
        if word == "allOf":
            self.also(*options)
        elif word == "oneOf" and mutually_exclusive(value, self.document.pointed):
            self.also({"anyOf": options})
        else:
            self.found[word] = options
            if word == "oneOf":
                self.document.choices.append(self.place)

    def negation(self, word: str, value: Any) -> None:
        """What must not hold."""
        self.also(self._turned(word, value))

    def _turned(self, word: str, value: Any) -> Found | bool:
        try:
            other = negated(value, self.words, self.document.pointed)
        except InvalidRequest as error:
            raise self.refusal(word, f"is not supported: {error}") from error
        return self.inner(other, word)

    def condition(self, word: str, value: Any) -> None:
        """What has to hold if something else does, or if not."""
        if "then" not in self.words and "else" not in self.words:
            return
        met, unmet = self.words.get("then", True), self.words.get("else", True)
        yes = {"allOf": [self.inner(value, word), self.inner(met, "then")]}
        no = {"allOf": [self._turned(word, value), self.inner(unmet, "else")]}
        self.also({"anyOf": [yes, no]})

    def refused(self, word: str, value: Any) -> None:
        """A word that nothing can hold."""
        if value is not False and value != []:
            raise self.refusal(word)

    # texts

    def pattern(self, word: str, value: Any) -> None:
        """An expression that a text matches."""
        if not isinstance(value, str):
            raise InvalidRequest(f"'pattern' at {self.place} is {value!r}; it must be a string")
        try:
            wholes = [value] if isinstance(value, WholePattern) else whole_patterns(value)
        except InvalidRequest as error:
            raise InvalidRequest(f"'pattern' at {self.place}: {error}") from error
        self._whole(*wholes)

    def format(self, word: str, value: Any) -> None:
        """A named form of texts; unknown ones say nothing."""
        if value in UNSUPPORTED:
            raise self.refusal(word, f"{value!r} is not supported")
        if isinstance(value, str) and value in LIBRARY:
            self.found[word] = value
        elif isinstance(value, str) and value in FORMATS:
            self._whole(FORMATS[value])

    def _whole(self, *expressions: str) -> None:
        for expression in expressions:
            if "pattern" in self.found:
                self.also({"pattern": f"^(?:{expression})$"})
            else:
                self.found["pattern"] = f"^(?:{expression})$"

    # counts and numbers

    def bound(self, word: str, value: Any) -> None:
        """The least or the greatest number."""
        if isinstance(value, bool) and word.startswith("exclusive"):
            self.found[word] = value
            return
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise InvalidRequest(f"{word!r} at {self.place} is {value!r}; it must be a number")
        upper = word.endswith("aximum")
        if (value < -_LARGEST) if upper else (value > _LARGEST):
            raise self.refusal(word, "leaves only numbers of more than 18 digits")
        if abs(value) > 1e300:
            return  # no answer has that many digits
        if not upper and isinstance(value, int):
            value = max(value, -_LARGEST)  # llguidance has no whole number below
        self.found[word] = _inward(value, upper=upper)

    def multiple(self, word: str, value: Any) -> None:
        """A number that is contained a whole number of times."""
        if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
            raise InvalidRequest(f"{word!r} at {self.place} is {value!r}; it must be more than 0")
        self.found[word] = value

    # lists

    def items(self, word: str, value: Any) -> None:
        """Also in the words of older drafts, in which ``items`` may be a list."""
        first = value if word == "items" else self.words[word]
        if word == "items" and not isinstance(first, list):
            self.found[word] = self.inner(value, word)
            return
        if not isinstance(first, list):
            raise InvalidRequest(f"{word!r} at {self.place} must be a list of schemas")
        self.found["prefixItems"] = [self.inner(s, word, str(n)) for n, s in enumerate(first)]
        if word == "items" and "additionalItems" in self.words:
            self.found["items"] = self.inner(self.words["additionalItems"], "additionalItems")

    def unique(self, word: str, value: Any) -> None:
        """No two items alike: every order of the values that items may have."""
        if value is not True or self.words.get("maxItems") in (0, 1):
            return
        listed = self._listed_items()
        if not listed or len(listed) > MOST_DIFFERENT:
            raise self.refusal(
                word, f"is not supported but for items of up to {MOST_DIFFERENT} listed values"
            )
        orders = [order for size in range(len(listed) + 1) for order in permutations(listed, size)]
        lists = ({"type": "array", "prefixItems": [{"const": one} for one in order],
                  "minItems": len(order), "maxItems": len(order)} for order in orders)  # fmt: skip
        others = {"type": [kind for kind in TYPES if kind != "array"]}
        self.also({"anyOf": [others, *lists]})

    def _listed_items(self) -> list[Any]:
        """The values that all items may have, where they are listed."""
        schema = self.words.get("items")
        if isinstance(schema, Mapping) and isinstance(schema.get("$ref"), str):
            schema = self.document.pointed(schema["$ref"])
        if not isinstance(schema, Mapping) or "prefixItems" in self.words:
            return []
        found = [True, False] if schema.get("type") == "boolean" else listed_values(schema) or []
        return list({json.dumps(one): one for one in found}.values())

    def contains(self, word: str, value: Any) -> None:
        """An item that fits, which only the length can promise."""
        least = self.words.get("minContains", 1)
        if "maxContains" not in self.words and least == 0:
            return
        if value not in (True, {}) or "maxContains" in self.words or not isinstance(least, int):
            raise self.refusal(word)
        self.also({"minItems": least})


def _is_exact(number: int) -> bool:
    """Whether llguidance, which reads numbers as floats, reads this one as it is written."""
    return abs(number) < 1e300 and float(number) == number


def _inward(value: float, *, upper: bool) -> float:
    """The bound, or the nearest one within it that llguidance reads as it is written."""
    if isinstance(value, float) or _is_exact(value) or value == _LARGEST:
        return value
    near = float(value)
    outside = near > value if upper else near < value
    return int(math.nextafter(near, -math.inf if upper else math.inf)) if outside else int(near)
