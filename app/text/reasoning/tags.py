"""An answer in typed parts, and its tagged text: reasoning between <think> tags, then the rest.

Many models write these tags themselves. The tagged text is what is stored and shown, so this is the
only module that reads the tags.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from enum import Enum, auto
from typing import NamedTuple, Protocol

from app.request import Message
from app.text.detokenizer import ByteTable, Detokenizer, open_length

OPEN, CLOSE = "<think>", "</think>"
REASONING_STARTS, REASONING_ENDS = f"{OPEN}\n", f"\n{CLOSE}\n\n"


class Kind(Enum):
    """What a part of an answer is."""

    START = auto()  # the tag before the reasoning
    REASONING = auto()
    END = auto()  # the tag after it
    TEXT = auto()  # the rest, tool calls included


class Part(NamedTuple):
    """The next characters of an answer; the joined texts of all parts are its tagged text."""

    kind: Kind
    text: str


def parts_of(kind: Kind, text: str) -> list[Part]:
    """One part, or none where the text is empty."""
    return [Part(kind, text)] if text else []


def joined(parts: Iterable[Part]) -> str:
    """The tagged text of these parts."""
    return "".join(part.text for part in parts)


class AnswerStream(Protocol):
    """Turns the tokens of one answer into parts that can be shown at once."""

    def feed(self, ids: Iterable[int]) -> list[Part]:
        """The parts that these tokens complete."""
        ...

    def end(self) -> list[Part]:
        """The rest."""
        ...


class SplitAnswer(NamedTuple):
    """The reasoning and the text of a tagged text; None for what has not started."""

    reasoning: str | None
    text: str | None


def split_reasoning(tagged: str) -> SplitAnswer:
    """Split the tagged text of an answer."""
    answer = tagged.lstrip()
    if not answer.startswith(OPEN):
        return SplitAnswer(None, tagged)
    reasoning, close, text = answer.removeprefix(OPEN).partition(CLOSE)
    reasoning = reasoning.removeprefix("\n")
    if not close:
        return SplitAnswer(reasoning, None)
    return SplitAnswer(reasoning.removesuffix("\n"), text.removeprefix("\n\n"))


def with_separate_reasoning(message: Message) -> Message:
    """An earlier answer with its reasoning in ``reasoning`` and not in ``content``."""
    if message.role != "assistant":
        return message
    reasoning, text = split_reasoning(message.content)
    return replace(message, content=text or "", reasoning=message.reasoning or reasoning or "")


def opened_by(rendered: str) -> str:
    """The start of reasoning that a prompt ends with, with the space after it; else an empty text."""
    before = rendered.rstrip().removesuffix(OPEN)
    return rendered[len(before) :] if len(before) < len(rendered.rstrip()) else ""


class TagSplitter:
    """Splits text with tags; holds back what may become a tag."""

    def __init__(self, prefix: str = "") -> None:
        """``prefix`` comes before the first text: the start of the answer, or an opened tag."""
        self._held = ""
        self._step: Callable[[], list[Part] | None] = self._begin
        if prefix:
            reasoning, text = split_reasoning(prefix)
            in_reasoning = reasoning is not None and text is None
            self._step = self._reason if in_reasoning else self._say

    def feed(self, text: str) -> list[Part]:
        """The parts that this text completes."""
        self._held += text
        parts: list[Part] = []
        while self._held and (found := self._step()) is not None:
            parts += found
        return parts

    def end(self) -> list[Part]:
        """What was held back."""
        kind = Kind.REASONING if self._step == self._reason else Kind.TEXT
        rest, self._held = self._held, ""
        return parts_of(kind, rest)

    def _begin(self) -> list[Part] | None:
        """Space and a tag, or text."""
        answer = self._held.lstrip()
        if answer.startswith(OPEN):
            end = len(self._held) - len(answer) + len(OPEN)
            tag, self._held, self._step = self._held[:end], self._held[end:], self._reason
            return [Part(Kind.START, tag)]
        if OPEN.startswith(answer):
            return None
        self._step = self._say
        return []

    def _reason(self) -> list[Part] | None:
        """Reasoning up to the closing tag."""
        reasoning, close, rest = self._held.partition(CLOSE)
        if close:
            self._held, self._step = rest, self._say
            return [*parts_of(Kind.REASONING, reasoning), Part(Kind.END, CLOSE)]
        free = len(reasoning) - open_length(reasoning, [CLOSE])
        self._held = reasoning[free:]
        return parts_of(Kind.REASONING, reasoning[:free]) or None

    def _say(self) -> list[Part]:
        text, self._held = self._held, ""
        return [Part(Kind.TEXT, text)]


class TaggedDetokenizer:
    """For models that write the tags themselves, as text, or do not reason."""

    def __init__(self, table: ByteTable, prefix: str = "", opened: str = "") -> None:
        """``prefix`` is the start of the answer that these tokens continue, ``opened`` as in Prompt."""
        self._text = Detokenizer(table, begins=not prefix)
        self._tags = TagSplitter(prefix or opened)

    def feed(self, ids: Iterable[int]) -> list[Part]:
        """The parts that these tokens complete."""
        return self._tags.feed(self._text.feed(ids))

    def end(self) -> list[Part]:
        """Half a character, half a tag."""
        return [*self._tags.feed(self._text.end()), *self._tags.end()]
