"""Three families of answers: plain, with a model's own reasoning marks, in channels (harmony)."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import partial

from typing_extensions import override

from app.request import Message
from app.text.conversation import one_call_each
from app.text.harmony import format as harmony
from app.text.harmony.calls import held_in_channels
from app.text.harmony.detokenizer import HarmonyDetokenizer
from app.text.harmony.format import START, HarmonyTokens
from app.text.reasoning import markers
from app.text.reasoning.detokenizer import ReasoningDetokenizer
from app.text.reasoning.markers import AnswerMarks, ReasoningMarkers
from app.text.reasoning.tags import (
    AnswerStream,
    TaggedDetokenizer,
    opened_by,
    with_separate_reasoning,
)
from app.text.tools.answer_grammar import Holding, held, held_when_called
from app.text.vocabulary import Vocabulary

Hide = Callable[[str], str]
_CLOSED = "\n</think>\n\n"


class AnswerFormat(ABC):
    """How the models of one family write an answer."""

    grammar: Holding = staticmethod(held)  # makes the grammar of an answer with tools
    calls_in_channels = False

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary

    @abstractmethod
    def messages(self, messages: Sequence[Message]) -> list[Message]:
        """A conversation as the template takes it."""

    @abstractmethod
    def complete(self, rendered: str, prefix: str, hide: Hide, *, thinks: bool) -> tuple[str, str]:
        """A rendered prompt with the start of the answer, and the reasoning tag that is open then."""

    @abstractmethod
    def detokenizer(self, prefix: str, opened: str) -> AnswerStream:
        """For the tokens after such a prompt."""

    def text_detokenizer(self, text: str) -> AnswerStream:
        """For the tokens after a text that a program wrote."""
        return TaggedDetokenizer(self._vocabulary.bytes, text)


class PlainFormat(AnswerFormat):
    """Models that write the <think> tags themselves, or do not reason."""

    def __init__(self, vocabulary: Vocabulary, *, takes_reasoning: bool) -> None:
        """``takes_reasoning``: the template has a place for the reasoning of earlier answers."""
        super().__init__(vocabulary)
        self._takes_reasoning = takes_reasoning

    @override
    def messages(self, messages: Sequence[Message]) -> list[Message]:
        if not self._takes_reasoning:
            return list(messages)
        return [with_separate_reasoning(message) for message in messages]

    @override
    def complete(self, rendered: str, prefix: str, hide: Hide, *, thinks: bool) -> tuple[str, str]:
        opened = opened_by(rendered)
        rest = prefix.removeprefix(opened)
        if opened and (not thinks or (prefix and rest == prefix)):
            rendered += _CLOSED
        return rendered + hide(rest), opened if thinks and not prefix else ""

    @override
    def detokenizer(self, prefix: str, opened: str) -> AnswerStream:
        return TaggedDetokenizer(self._vocabulary.bytes, prefix, opened)


class ReasoningFormat(AnswerFormat):
    """Models with their own marks around the reasoning, read off the chat template."""

    def __init__(
        self, vocabulary: Vocabulary, marks: ReasoningMarkers, in_answers: AnswerMarks
    ) -> None:
        super().__init__(vocabulary)
        self._marks, self._in_answers = marks, in_answers

    @override
    def messages(self, messages: Sequence[Message]) -> list[Message]:
        return [with_separate_reasoning(message) for message in messages]

    @override
    def complete(self, rendered: str, prefix: str, hide: Hide, *, thinks: bool) -> tuple[str, str]:
        return markers.continuation(rendered, prefix, self._marks, hide, thinks=thinks)

    @override
    def detokenizer(self, prefix: str, opened: str) -> AnswerStream:
        return ReasoningDetokenizer(self._in_answers, self._vocabulary.bytes, prefix, opened)


class HarmonyFormat(AnswerFormat):
    """Models that write in channels, as OpenAI's gpt-oss."""

    grammar: Holding = staticmethod(held_when_called)

    def __init__(
        self, vocabulary: Vocabulary, tokens: HarmonyTokens, *, calls_in_channels: bool
    ) -> None:
        """``calls_in_channels``: the template writes calls into channels, too."""
        super().__init__(vocabulary)
        self._tokens, self.calls_in_channels = tokens, calls_in_channels
        if calls_in_channels:
            self.grammar = partial(held_in_channels, constrains=tokens.constrains)

    @override
    def messages(self, messages: Sequence[Message]) -> list[Message]:
        found = [harmony.for_template(message) for message in messages]
        return one_call_each(found) if self.calls_in_channels else found

    @override
    def complete(self, rendered: str, prefix: str, hide: Hide, *, thinks: bool) -> tuple[str, str]:
        return rendered + harmony.continuation(prefix, hide, thinks=thinks), ""

    @override
    def detokenizer(self, prefix: str, opened: str) -> AnswerStream:
        return HarmonyDetokenizer(self._tokens, self._vocabulary.bytes, prefix)

    @override
    def text_detokenizer(self, text: str) -> AnswerStream:
        """Starts in the channel that the text has opened."""
        found = HarmonyDetokenizer(self._tokens, self._vocabulary.bytes, begins=False)
        _, mark, part = text.rpartition(START)
        found.feed(self._vocabulary.encode(mark + part) if mark else ())
        return found
