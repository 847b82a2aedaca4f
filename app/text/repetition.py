"""Answers that say the same again and again, as small models do where nothing leads them on."""

import re

TAIL = 8_000  # characters at the end that are looked at
PROBE = 24  # characters that have to come again before more is compared
TOLD = 300, 3  # characters and times from which there is a notice: a shorter one may be a chorus
ENDED = 1_200, 5  # from which nothing else is to be expected
_NUMBER = re.compile(r"^[ \t]*\d+[.)][ \t]*", re.MULTILINE)  # of a list whose numbers grow
_WORD = re.compile(r"\w+")


def repeats(text: str, asked: str = "") -> bool:
    """Whether ``text`` ends with one passage, several times in a row, numbers of lists aside.

    Not where the question ``asked`` has every word of the passage: then it may want that.
    """
    return _repeats(text, asked, *TOLD)


def never_ends(text: str, asked: str = "") -> bool:
    """The same so often that the rest of the answer would be that passage, too."""
    return _repeats(text, asked, *ENDED)


def _repeats(text: str, asked: str, length: int, times: int) -> bool:
    tail = _NUMBER.sub("", text[-TAIL:])
    period = _period(tail, length, times)
    if not period:
        return False
    words = _WORD.findall(tail[-2 * period :].lower())[1:-1]  # the outer ones may be cut
    return not words or not set(words) <= set(_WORD.findall(asked.lower()))


def _period(tail: str, length: int, times: int) -> int:
    """Characters of the passage that ends ``tail``, at least ``times`` and ``length``; 0: there is none."""
    probe = tail[-PROBE:]
    at = tail.rfind(probe, 0, len(tail) - 1)
    while at >= 0 and probe.strip():
        period = len(tail) - PROBE - at
        whole = max(length, times * period)
        if whole > len(tail):
            return 0
        if tail[-whole:-period] == tail[period - whole :]:
            return period
        at = tail.rfind(probe, 0, at + PROBE - 1)
    return 0
