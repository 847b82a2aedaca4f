"""Answers in channels to text, token by token; see ``marks.py`` for both of them."""

import json
import re
from collections.abc import Iterable
from enum import Enum, auto

from app.text.detokenizer import ByteTable, Detokenizer
from app.text.harmony.format import ANALYSIS, FUNCTIONS, HarmonyFormat
from app.text.output_parser import THOUGHT_BEGINS, THOUGHT_ENDS, split_reasoning
from app.text.tools.call_format import TOLD

# What a header begins with where the recipient stands before the channel, or a part of it.
_RECIPIENT = re.compile(r" ?(t(o(=[\w.-]*( \w*)?)?)?)?", re.ASCII)
_TO = re.compile(r"(?:^|\s)to=(\S+)")


class _Part(Enum):
    """What the tokens that come are part of."""

    LOOSE = auto()  # nothing that a header told: the beginning, or behind an end
    HEADER = auto()
    THOUGHT = auto()
    SPEECH = auto()
    CALL = auto()
    UNHEARD = auto()  # a thought behind what was said already: there is no place for it


class HarmonyDetokenizer:
    """Of one answer: headers are not told, the thought stands in tags, calls stand in words.

    Any grouping of the tokens gives the same text. An answer without a header is told as it is.
    """

    def __init__(self, channels: HarmonyFormat, table: ByteTable, *, begins: bool = True) -> None:
        """``begins`` is False for the rest of a text, whose first space is text."""
        self._channels, self._table = channels, table
        self._part, self._text = _Part.LOOSE, Detokenizer(table, begins=begins)
        self._fresh = True  # nothing of this part has been told
        self._role, self._header = "", ""  # before the channel, and from it on
        self._call = ""  # its arguments so far
        self._thinking = self._spoken = False  # a thought is open; something was said behind it

    @classmethod
    def behind(cls, begun: str, channels: HarmonyFormat, table: ByteTable) -> "HarmonyDetokenizer":
        """For the rest of an answer, whose part the prompt has opened: see ``going_on``."""
        made = cls(channels, table, begins=False)
        made._fresh = False
        made._thinking = split_reasoning(begun).said is None
        made._part = _Part.THOUGHT if made._thinking else _Part.SPEECH
        made._spoken = not made._thinking
        return made

    def feed(self, ids: Iterable[int]) -> str:
        """The text that these tokens complete."""
        return "".join(map(self._take, ids))

    def end(self) -> str:
        """What is left: half a character, what might have become a header, tags that are open.

        A thought that broke off stays open, as its model left it.
        """
        part = self._part
        rest = self._over()
        if self._thinking and part is not _Part.THOUGHT:
            self._thinking = False
            rest += THOUGHT_ENDS
        return rest

    def _take(self, token: int) -> str:
        channels = self._channels
        if token == channels.message:
            return self._open()
        if token == channels.channel:
            return self._name_follows()
        if token == channels.start:
            return self._over(_Part.HEADER)
        if token == channels.end or token in channels.ends:
            return self._over()
        if self._part is _Part.HEADER and not self._table.of(token):
            self._header += " "  # another control token, which ends a word
            return ""
        return self._read(self._text.feed((token,)))

    def _read(self, text: str) -> str:
        """More text of this part."""
        if self._part is _Part.HEADER:
            self._header += text
        if self._part is _Part.LOOSE:
            self._header += text
            if _RECIPIENT.fullmatch(self._header):
                return ""  # so far it is one
            text, self._header = self._header, ""
            self._part = _Part.SPEECH
        if self._part in (_Part.HEADER, _Part.UNHEARD):
            return ""
        return self._told(text)

    def _over(self, then: _Part = _Part.LOOSE) -> str:
        """The end of this part: what it held back."""
        rest = self._read(self._text.end())
        if self._part is _Part.LOOSE and self._header:
            self._part = _Part.SPEECH
            rest += self._told(self._header)
        if self._part is _Part.CALL and _is_json(self._call):
            rest += TOLD.after
        self._begin(then)
        return rest

    def _begin(self, part: _Part) -> None:
        self._part, self._fresh = part, True
        self._text = Detokenizer(self._table, begins=False)
        self._role = self._header = self._call = ""

    def _name_follows(self) -> str:
        """Behind the mark of a channel."""
        if self._part is _Part.LOOSE:  # a header whose first mark the prompt has
            self._header += self._text.end()
            self._part = _Part.HEADER
        rest = "" if self._part is _Part.HEADER else self._over(_Part.HEADER)
        self._role, self._header = f"{self._role} {self._header}", ""
        return rest

    def _open(self) -> str:
        """The header is over, and tells what follows."""
        if self._part not in (_Part.HEADER, _Part.LOOSE):
            return ""
        header = self._header + self._text.end()
        channel = "".join(header.split()[:1])
        to = _TO.search(f"{self._role} {header}")
        recipient = to.group(1) if to else ""
        if channel == ANALYSIS and not recipient.startswith(FUNCTIONS):
            self._begin(_Part.UNHEARD if self._spoken else _Part.THOUGHT)
        else:
            self._begin(_Part.CALL if recipient else _Part.SPEECH)
        self._role = recipient.removeprefix(FUNCTIONS)
        return ""

    def _told(self, text: str) -> str:
        """Text that is shown, behind what stands before the first of its part."""
        if not text:
            return ""
        before = self._before() if self._fresh else ""
        self._fresh = False
        if self._part is _Part.CALL:
            self._call += text
        return before + text

    def _before(self) -> str:
        if self._part is _Part.THOUGHT:
            before, self._thinking = "\n\n" if self._thinking else THOUGHT_BEGINS, True
            return before
        before = THOUGHT_ENDS if self._thinking else "\n\n" if self._spoken else ""
        self._thinking, self._spoken = False, True
        if self._part is _Part.CALL:
            before += f"{TOLD.before}{json.dumps(self._role)[1:-1]}{TOLD.between}"
        return before


def _is_json(text: str) -> bool:
    """Whether the arguments of a call are whole, so that its end is no end of another's."""
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True
