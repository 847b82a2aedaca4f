"""Answers with reasoning between a model's own marks, token by token; see ``markers.py``."""

from collections.abc import Callable, Iterable

from app.text.detokenizer import ByteTable, Detokenizer, open_length
from app.text.reasoning.markers import AnswerMarks
from app.text.reasoning.tags import (
    REASONING_ENDS,
    REASONING_STARTS,
    Kind,
    Part,
    parts_of,
    split_reasoning,
)


class ReasoningDetokenizer:
    """Of one answer: the marks become tags, and empty reasoning gets none.

    Any grouping of the tokens gives the same parts, joined. An answer without the opening mark is
    text as it is.
    """

    def __init__(
        self, marks: AnswerMarks, table: ByteTable, prefix: str = "", opened: str = ""
    ) -> None:
        """``prefix`` is the start of the answer that these tokens continue, ``opened`` as in Prompt."""
        self._marks, self._table = marks, table
        self._stand_ins = dict(marks.stand_ins)
        self._text = Detokenizer(table, begins=not (prefix or opened))
        self._tokens: list[int] = []  # of what may yet become the opening
        self._held = ""  # text that may become a mark, or space that may be dropped
        self._opened = self._reasoned = False  # the tag was written; some reasoning was
        self._take: Callable[[int], list[Part]] = self._begin
        if prefix or opened:
            reasoning, text = split_reasoning(prefix or opened)
            self._opened, self._reasoned = reasoning is not None, bool(reasoning)
            if self._opened and text is None:
                self._take = self._reason
            else:
                self._take = self._say if text else self._rest

    def feed(self, ids: Iterable[int]) -> list[Part]:
        """The parts that these tokens complete."""
        return [part for token in ids for part in self._take(token)]

    def end(self) -> list[Part]:
        """The rest: half a character, half a mark. Unfinished reasoning gets no closing tag."""
        if self._take == self._begin:
            return parts_of(Kind.TEXT, self._as_it_is() + self._text.end())
        if self._take == self._reason:
            self._held += self._text.end()
            parts = self._reasoning_so_far()
            left, self._held = self._clean(self._held), ""
            return [*parts, *self._reasoning(left)]
        rest = self._text.end()
        return parts_of(Kind.TEXT, self._trimmed(rest) if self._take == self._rest else rest)

    def _begin(self, token: int) -> list[Part]:
        self._tokens.append(token)
        self._held = (self._held + self._seen(token)).lstrip()
        opening = self._marks.opening
        if self._held.startswith(opening):
            self._held, self._take = self._held.removeprefix(opening), self._reason
            return self._reasoning_so_far()
        if opening.startswith(self._held):
            return []
        self._take = self._say
        return parts_of(Kind.TEXT, self._as_it_is())

    def _as_it_is(self) -> str:
        """The text of all tokens so far, marks not looked for."""
        self._text = Detokenizer(self._table)
        tokens, self._tokens, self._held = self._tokens, [], ""
        return self._text.feed(tokens)

    def _reason(self, token: int) -> list[Part]:
        self._held += self._seen(token)
        return self._reasoning_so_far()

    def _reasoning_so_far(self) -> list[Part]:
        """What is certain of it, without the space around it."""
        closing = self._marks.closing
        reasoning, close, rest = self._held.partition(closing)
        free = len(reasoning) - (0 if close else open_length(reasoning, [closing]))
        inner, self._held = self._clean(reasoning[:free]), reasoning[free:]
        text = inner.rstrip()
        parts = self._reasoning(text)
        if not close:
            self._held = inner[len(text) :] + self._held
            return parts
        self._held, self._take = "", self._rest
        end = parts_of(Kind.END, REASONING_ENDS if self._opened else "")
        return [*parts, *end, *parts_of(Kind.TEXT, self._trimmed(rest))]

    def _reasoning(self, text: str) -> list[Part]:
        """More reasoning, after the tag."""
        text = text if self._reasoned else text.lstrip()
        if not text:
            return []
        start = parts_of(Kind.START, "" if self._opened else REASONING_STARTS)
        self._opened = self._reasoned = True
        return [*start, Part(Kind.REASONING, text)]

    def _rest(self, token: int) -> list[Part]:
        return parts_of(Kind.TEXT, self._trimmed(self._text.feed((token,))))

    def _trimmed(self, text: str) -> str:
        """The first text after the reasoning, without the space before it."""
        text = text.lstrip()
        if text:
            self._take = self._say
        return text

    def _say(self, token: int) -> list[Part]:
        return parts_of(Kind.TEXT, self._text.feed((token,)))

    def _seen(self, token: int) -> str:
        """The text that a token completes; a control token of the marks becomes its stand-in."""
        stand_in = self._stand_ins.get(token)
        return self._text.feed((token,)) if stand_in is None else self._text.end() + stand_in

    def _clean(self, text: str) -> str:
        """Without the stand-ins, which are no text."""
        for stand_in in self._stand_ins.values():
            text = text.replace(stand_in, "")
        return text
