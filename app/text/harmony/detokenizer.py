"""Answers in channels, token by token; see ``format.py``."""

import json
import re
from collections.abc import Iterable
from enum import Enum, auto

from app.text.detokenizer import ByteTable, Detokenizer
from app.text.harmony.format import ANALYSIS, FUNCTIONS, HarmonyTokens
from app.text.reasoning.tags import (
    REASONING_ENDS,
    REASONING_STARTS,
    Kind,
    Part,
    parts_of,
    split_reasoning,
)
from app.text.tools.call_format import DEFAULT_FORM

# The start of a header whose recipient comes before the channel, or a part of it.
_RECIPIENT = re.compile(r" ?(t(o(=[^\s<]*( \w*)?)?)?)?", re.ASCII)
_TO = re.compile(r"(?:^|\s)to=(\S+)")


class _State(Enum):
    """What the next tokens belong to."""

    OUTSIDE = auto()  # the beginning, or after an end: no header has come
    HEADER = auto()
    REASONING = auto()
    TEXT = auto()
    CALL = auto()
    DROPPED = auto()  # reasoning after text: it has no place


class HarmonyDetokenizer:
    """Of one answer: headers are dropped, reasoning gets tags, calls get the default form.

    Any grouping of the tokens gives the same parts, joined. An answer without a header is text.
    """

    def __init__(
        self, tokens: HarmonyTokens, table: ByteTable, prefix: str = "", *, begins: bool = True
    ) -> None:
        """``prefix`` is the start of the answer; the prompt has opened the channel of its rest.

        ``begins`` is False for the rest of a text, whose first space is text.
        """
        self._tokens, self._table = tokens, table
        self._state = _State.OUTSIDE
        self._text = Detokenizer(table, begins=begins and not prefix)
        self._fresh = not prefix  # no text of this channel has come
        self._role, self._header = "", ""  # before the channel, and from it on
        self._call = ""  # its arguments so far
        self._reasoning = self._spoken = False  # reasoning is open; text has come
        if prefix:
            self._reasoning = split_reasoning(prefix).text is None
            self._state = _State.REASONING if self._reasoning else _State.TEXT
            self._spoken = not self._reasoning

    def feed(self, ids: Iterable[int]) -> list[Part]:
        """The parts that these tokens complete."""
        return [part for token in ids for part in self._take(token)]

    def end(self) -> list[Part]:
        """The rest: half a character, half a header, an open tag.

        Unfinished reasoning gets no closing tag.
        """
        state = self._state
        rest = self._end_channel()
        if self._reasoning and state is not _State.REASONING:
            self._reasoning = False
            rest.append(Part(Kind.END, REASONING_ENDS))
        return rest

    def _take(self, token: int) -> list[Part]:
        tokens = self._tokens
        if token == tokens.message:
            return self._open_channel()
        if token == tokens.channel:
            return self._start_name()
        if token == tokens.start:
            return self._end_channel(_State.HEADER)
        if token == tokens.end or token in tokens.ends:
            return self._end_channel()
        if self._state is _State.HEADER and not self._table.of(token):
            self._header += " "  # another control token, which ends a word
            return []
        return self._read(self._text.feed((token,)))

    def _read(self, text: str) -> list[Part]:
        """More text of this channel or header."""
        if self._state is _State.HEADER:
            self._header += text
        if self._state is _State.OUTSIDE:
            self._header += text
            if _RECIPIENT.fullmatch(self._header):
                return []  # it may become a header
            text, self._header = self._header, ""
            self._state = _State.TEXT
        if self._state in (_State.HEADER, _State.DROPPED):
            return []
        return self._parts(text)

    def _end_channel(self, then: _State = _State.OUTSIDE) -> list[Part]:
        """The end of this channel: what was held back."""
        rest = self._read(self._text.end())
        if self._state is _State.OUTSIDE and self._header:
            self._state = _State.TEXT
            rest += self._parts(self._header)
        if self._state is _State.CALL and _is_json(self._call):
            rest.append(Part(Kind.TEXT, DEFAULT_FORM.after))
        self._begin(then)
        return rest

    def _begin(self, state: _State) -> None:
        self._state, self._fresh = state, True
        self._text = Detokenizer(self._table, begins=False)
        self._role = self._header = self._call = ""

    def _start_name(self) -> list[Part]:
        """After the mark of a channel comes its name."""
        if self._state is _State.OUTSIDE:  # a header whose first mark is in the prompt
            self._header += self._text.end()
            self._state = _State.HEADER
        rest = [] if self._state is _State.HEADER else self._end_channel(_State.HEADER)
        self._role, self._header = f"{self._role} {self._header}", ""
        return rest

    def _open_channel(self) -> list[Part]:
        """The header is complete and says what follows."""
        if self._state not in (_State.HEADER, _State.OUTSIDE):
            return []
        header = self._header + self._text.end()
        channel = "".join(header.split()[:1])
        to = _TO.search(f"{self._role} {header}")
        recipient = to.group(1) if to else ""
        if channel == ANALYSIS and not recipient.startswith(FUNCTIONS):
            self._begin(_State.DROPPED if self._spoken else _State.REASONING)
        else:
            self._begin(_State.CALL if recipient else _State.TEXT)
        self._role = recipient.removeprefix(FUNCTIONS)
        return []

    def _parts(self, text: str) -> list[Part]:
        """Text that is shown, after what comes before the first text of its channel."""
        if not text:
            return []
        before = self._before() if self._fresh else []
        self._fresh = False
        if self._state is _State.CALL:
            self._call += text
        kind = Kind.REASONING if self._state is _State.REASONING else Kind.TEXT
        return [*before, Part(kind, text)]

    def _before(self) -> list[Part]:
        if self._state is _State.REASONING:
            again, self._reasoning = self._reasoning, True
            return [Part(Kind.REASONING, "\n\n") if again else Part(Kind.START, REASONING_STARTS)]
        end = parts_of(Kind.END, REASONING_ENDS if self._reasoning else "")
        before = "\n\n" if self._spoken and not self._reasoning else ""
        self._reasoning, self._spoken = False, True
        if self._state is _State.CALL:
            before += f"{DEFAULT_FORM.before}{json.dumps(self._role)[1:-1]}{DEFAULT_FORM.between}"
        return [*end, *parts_of(Kind.TEXT, before)]


def _is_json(text: str) -> bool:
    """Whether the arguments of a call are complete: only then is the call closed."""
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True
