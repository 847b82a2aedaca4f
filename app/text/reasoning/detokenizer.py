"""Answers whose thought stands between a model's own marks to text, token by token; see ``marks.py``."""

from collections.abc import Callable, Iterable

from app.text.detokenizer import ByteTable, Detokenizer, open_length
from app.text.output_parser import THOUGHT_BEGINS, THOUGHT_ENDS, split_reasoning
from app.text.reasoning.markers import SpeltMarks


class ReasoningDetokenizer:
    """Of one answer: the thought that it begins with stands in tags, and an empty one nowhere.

    Any grouping of the tokens gives the same text. An answer that begins otherwise is told as it is.
    """

    def __init__(self, marks: SpeltMarks, table: ByteTable) -> None:
        self._marks, self._table = marks, table
        self._stand_ins = dict(marks.stand_ins)
        self._text = Detokenizer(table)
        self._tokens: list[int] = []  # of what may yet become the opening
        self._held = ""  # text that may yet become a mark, or is space that may be nobody's
        self._opened = self._thought = False  # the tag was told; something of the thought was
        self._take: Callable[[int], str] = self._begin

    @classmethod
    def behind(cls, begun: str, marks: SpeltMarks, table: ByteTable) -> "ReasoningDetokenizer":
        """For the rest of an answer, in its thought or behind it: see ``going_on``."""
        made = cls(marks, table)
        made._text = Detokenizer(table, begins=False)
        thought, said = split_reasoning(begun)
        made._opened, made._thought = thought is not None, bool(thought)
        if thought is not None and said is None:
            made._take = made._think
        else:
            made._take = made._speak if said else made._rest
        return made

    def feed(self, ids: Iterable[int]) -> str:
        """The text that these tokens complete."""
        return "".join(self._take(token) for token in ids)

    def end(self) -> str:
        """What is left: half a character, what might have become a mark.

        A thought that broke off stays open, as its model left it.
        """
        if self._take == self._begin:
            return self._as_it_is() + self._text.end()
        if self._take == self._think:
            self._held += self._text.end()
            said = self._thought_so_far()
            left, self._held = self._clean(self._held), ""
            return said + self._told(left)
        return self._trimmed(self._text.end()) if self._take == self._rest else self._text.end()

    def _begin(self, token: int) -> str:
        self._tokens.append(token)
        self._held = (self._held + self._seen(token)).lstrip()
        opening = self._marks.opening
        if self._held.startswith(opening):
            self._held, self._take = self._held.removeprefix(opening), self._think
            return self._thought_so_far()
        if opening.startswith(self._held):
            return ""  # so far it is one
        self._take = self._speak
        return self._as_it_is()

    def _as_it_is(self) -> str:
        """All tokens so far without an eye for marks."""
        self._text = Detokenizer(self._table)
        tokens, self._tokens, self._held = self._tokens, [], ""
        return self._text.feed(tokens)

    def _think(self, token: int) -> str:
        self._held += self._seen(token)
        return self._thought_so_far()

    def _thought_so_far(self) -> str:
        """What is known of it, without the space around it."""
        closing = self._marks.closing
        thought, close, behind = self._held.partition(closing)
        free = len(thought) - (0 if close else open_length(thought, [closing]))
        inner, self._held = self._clean(thought[:free]), thought[free:]
        said = inner.rstrip()
        told = self._told(said)
        if not close:
            self._held = inner[len(said) :] + self._held
            return told
        self._held, self._take = "", self._rest
        return told + (THOUGHT_ENDS if self._opened else "") + self._trimmed(behind)

    def _told(self, thought: str) -> str:
        """More of the thought, behind its tag."""
        text = thought if self._thought else thought.lstrip()
        if not text:
            return ""
        before = "" if self._opened else THOUGHT_BEGINS
        self._opened = self._thought = True
        return before + text

    def _rest(self, token: int) -> str:
        return self._trimmed(self._text.feed((token,)))

    def _trimmed(self, text: str) -> str:
        """Of the first text behind a thought: the space before it is nobody's."""
        text = text.lstrip()
        if text:
            self._take = self._speak
        return text

    def _speak(self, token: int) -> str:
        return self._text.feed((token,))

    def _seen(self, token: int) -> str:
        """The text that a token completes; that of a control token of the marks is its stand-in."""
        stand_in = self._stand_ins.get(token)
        return self._text.feed((token,)) if stand_in is None else self._text.end() + stand_in

    def _clean(self, text: str) -> str:
        """Without the stand-ins, which are no text."""
        for stand_in in self._stand_ins.values():
            text = text.replace(stand_in, "")
        return text
