"""Bytes of a text file to text: Unicode by its marks or zeros, else the old encoding that fits best."""

import codecs
import re

from charset_normalizer import from_bytes, is_binary

_MARKS = (  # the longer ones first: UTF-32's begins with UTF-16's
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_EAST = "、-〿＀-｠一-龥"
# What most of the characters above ASCII are in a text of this encoding; where two fit, the first.
_OLD = (
    ("cp1252", "àáâãäåæçèéêëìîïíñòóôõöøùúûüßœÀÁÂÄÅÆÇÈÉÊÍÎÑÓÔÖØÚÜ¿¡“”„‘’‚–—…•€£§°©®«»´·×½¼¾²³±µªº"),  # noqa: RUF001
    ("cp1250", "áčćďěéęíłňńóőřšśťúůűýžźżąĄĆČĘŁŚŠŻŽöüäţăâî“”„–—…"),  # noqa: RUF001
    ("iso8859_2", "áčćďěéęíłňńóőřšśťúůűýžźżąĄĆČĘŁŚŠŻŽöüäţăâî"),
    ("cp1254", "ışğçöüİŞĞÇÖÜâî“”’–—…"),  # noqa: RUF001
    ("euc_jp", f"ぁ-ヶー{_EAST}"),
    ("cp932", f"ぁ-ヶー{_EAST}①-⑳ｦ-ﾟ"),
    ("euc_kr", "가-힣、-〿＀-｠"),
    ("gb2312", _EAST),
    ("big5", _EAST),
    ("gb18030", _EAST),
    ("cp1251", "оеаинтсрвлкмдпуОЕАИНТСРВ—«»–№"),  # noqa: RUF001
    ("koi8_r", "оеаинтсрвлкмдпуОЕАИНТСРВ"),
    ("cp1253", "αοιετσνηυρπκμλωςάόέίήύώΑΟΙΕΤΣΝΗ"),
    ("tis_620", "กขคงจชดตทนบปพมยรลวสหอะ-ูเแโใไ็่้์"),
    ("cp1255", "אבדהוילמםנןרשתךעחכ"),
    ("cp1256", "ابتدرسعفقكلمنهويةأ،؟"),
)
_LATIN = ("cp1252", "cp1250", "iso8859_2", "cp1254")
_ACCENTS = re.compile(r"[A-Za-z][^\x00-\x7f]|[^\x00-\x7f][A-Za-z]")  # inside of words
_WORDS = re.compile(r"(?<![A-Za-z])[^\x00-\x7f\W]{4,}(?![A-Za-z])")  # without a Latin letter
_JAPANESE, _KANA = ("euc_jp", "cp932"), re.compile("[ぁ-んァ-ヶ]")
_LEAST = 0.6  # share of expected characters
_ENOUGH = 20_000  # bytes that tell the encoding
_CONTROLS = re.compile(r"[\x00-\x08\x0e-\x1a\x1c-\x1f]")
_MOST_CONTROLS = 0.01


def decoded(data: bytes) -> str | None:
    """The text; None where ``data`` is no text in a known encoding."""
    encoding = _unicode(data, "iso2022_jp_2" if b"\x1b$B" in data else "utf-8") or _old(data)
    text = data.decode(encoding).removeprefix("\ufeff") if encoding else _likeliest(data)
    return None if "\0" in text else text


def _unicode(data: bytes, plain: str) -> str | None:
    marked = next((kind for mark, kind in _MARKS if data.startswith(mark)), None)
    zeros = [data[at : 4 * _ENOUGH : 4].count(0) for at in range(4)]
    most = len(data[: 4 * _ENOUGH]) / 4 * 0.6
    by_zeros: dict[tuple[bool, ...], str] = {  # ASCII characters have zeros in these places of four
        (False, True, False, True): "utf-16-le",
        (True, False, True, False): "utf-16-be",
        (False, True, True, True): "utf-32-le",
        (True, True, True, False): "utf-32-be",
    }
    unmarked = by_zeros.get(tuple(count > most for count in zeros), plain)
    for encoding in (marked, unmarked):
        if encoding and _fits(data, encoding):
            return encoding
    return None


def _old(data: bytes) -> str | None:
    best, found = _LEAST, None
    for encoding, usual in _OLD:
        share = _share(data, encoding, usual)
        if share > best:
            best, found = share, encoding
    return found


def _likeliest(data: bytes) -> str:
    """In a rarer encoding, such as DOS's and the Macintosh's: a library knows them all.

    It comes last: of the usual ones it takes French, Portuguese and Swedish for others.
    """
    best = None if is_binary(data) else from_bytes(data).best()
    text = "\0" if best is None else str(best)
    return "\0" if len(_CONTROLS.findall(text)) > _MOST_CONTROLS * len(text) else text


def _share(data: bytes, encoding: str, usual: str) -> float:
    """Of the characters above ASCII, those that are usual in this encoding; 0 where it is not that."""
    if not _fits(data, encoding):
        return 0.0
    text = data[: 2 * _ENOUGH].decode(encoding, "ignore")
    foreign = [character for character in text if character > "\x7f"]
    if len(_CONTROLS.findall(text)) > _MOST_CONTROLS * len(text):
        return 0.0
    if encoding in _JAPANESE and len(_KANA.findall(text)) < len(foreign) / 10:
        return 0.0
    other = "".join(_WORDS.findall(text)) if encoding in _LATIN else _ACCENTS.findall(text)
    if len(other) > len(foreign) / 3:
        return 0.0
    return len(re.findall(f"[{usual}]", text)) / len(foreign) if foreign else 0.0


def _fits(data: bytes, encoding: str) -> bool:
    try:
        data.decode(encoding)
    except UnicodeDecodeError:
        return False
    return True
