"""What an answer is made of, told as it arrives: the thought it begins with, what it says, its calls."""

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from app.request import Message
from app.text.detokenizer import open_length
from app.text.tools.call_parser import ParsedOutput, ToolCallParser

OPEN, CLOSE = "<think>", "</think>"
THOUGHT_BEGINS, THOUGHT_ENDS = f"{OPEN}\n", f"\n{CLOSE}\n\n"


class SplitAnswer(NamedTuple):
    """An answer as text: its thought, and what it says; None for what has not begun."""

    thought: str | None
    said: str | None


def split_reasoning(answer: str) -> SplitAnswer:
    """The text of an answer, taken apart again."""
    begun = answer.lstrip()
    if not begun.startswith(OPEN):
        return SplitAnswer(None, answer)
    thought, close, said = begun.removeprefix(OPEN).partition(CLOSE)
    thought = thought.removeprefix("\n")
    if not close:
        return SplitAnswer(thought, None)
    return SplitAnswer(thought.removesuffix("\n"), said.removeprefix("\n\n"))


def with_reasoning_apart(message: Message) -> Message:
    """An earlier answer whose thought does not stand in what it says."""
    if message.role != "assistant":
        return message
    thought, said = split_reasoning(message.content)
    return replace(message, content=said or "", thought=message.thought or thought or "")


class OutputParser:
    """Of one answer; text that may yet become a mark is held back until that is known."""

    def __init__(self, calls: ToolCallParser | None = None) -> None:
        """``calls`` is there where tools may be called."""
        self._calls = calls
        self._held, self._thought = "", False
        self._step: Callable[[ParsedOutput], bool] = self._begin

    @property
    def called(self) -> int:
        """Calls that are whole."""
        return 0 if self._calls is None else self._calls.called

    def feed(self, text: str) -> ParsedOutput:
        """What the next text makes known."""
        heard = ParsedOutput()
        self._held += text
        while self._held and self._step(heard):
            pass
        return heard

    def end(self) -> ParsedOutput:
        """What was held back and became nothing else; space at the end of a thought is nobody's."""
        heard, left = (
            ParsedOutput(),
            self._held.rstrip() if self._step == self._think else self._held,
        )
        self._held = ""
        if self._step == self._think:
            heard.thought = left
        elif self._step == self._begin:
            self._say(heard, left)
        if self._calls is not None:
            heard.said += self._calls.end()
        return heard

    def _begin(self, heard: ParsedOutput) -> bool:
        begun = self._held.lstrip()
        if begun.startswith(OPEN):
            self._held, self._step = begun.removeprefix(OPEN), self._think
        elif OPEN.startswith(begun):
            return False  # so far it is one
        else:
            self._step = self._speak
        return True

    def _think(self, heard: ParsedOutput) -> bool:
        """Up to the mark, without the space around the thought."""
        thought, close, behind = self._held.partition(CLOSE)
        free = thought if close else thought[: len(thought) - open_length(thought, [CLOSE])]
        said = free.rstrip()
        heard.thought += said if self._thought else said.lstrip()
        self._thought = self._thought or bool(said)
        if close:
            self._held, self._step = behind, self._rest
            return True
        self._held = self._held[len(said) :]
        return False

    def _rest(self, heard: ParsedOutput) -> bool:
        """Space behind a thought is nobody's, either."""
        self._held = self._held.lstrip()
        if self._held:
            self._step = self._speak
        return bool(self._held)

    def _speak(self, heard: ParsedOutput) -> bool:
        self._say(heard, self._held)
        self._held = ""
        return False

    def _say(self, heard: ParsedOutput, text: str) -> None:
        if self._calls is None:
            heard.said += text
            return
        found = self._calls.feed(text)
        heard.said += found.said
        heard.calls += found.calls
