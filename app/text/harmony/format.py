"""Answers in channels (OpenAI's harmony format): thoughts, text and calls, each behind a header.

Behind the prompt's ``<|start|>assistant`` a model writes

    <|channel|>analysis<|message|>THOUGHT<|end|>
    <|start|>assistant<|channel|>commentary<|message|>TEXT<|end|>
    <|start|>assistant<|channel|>commentary to=functions.NAME <|constrain|>json<|message|>{...}<|call|>
    <|start|>assistant<|channel|>final<|message|>ANSWER<|return|>

without these breaks, each part perhaps. Everywhere else in Slipstream an answer is one text, so that is
what comes of it here: the thought between tags at its beginning, and calls as they are told in words.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile

from app.request import Message
from app.text.output_parser import split_reasoning, with_reasoning_apart
from app.text.tools.call_format import CallForm
from app.text.vocabulary import Vocabulary

START, CHANNEL, MESSAGE, END = MARKS = ("<|start|>", "<|channel|>", "<|message|>", "<|end|>")
CONSTRAIN = "<|constrain|>"  # stands before the kind of a call's arguments
ENDS = ("<|return|>", "<|call|>", "<|endoftext|>")  # of an answer; END is that of one part
ANALYSIS, COMMENTARY, FINAL = "analysis", "commentary", "final"
FUNCTIONS = "functions."
SPELT = b"\xff"  # in grammars before the text of a control token: no text has such a byte


@dataclass(frozen=True, slots=True)
class HarmonyFormat:
    """The control tokens of a vocabulary whose answers are written in channels."""

    start: int
    channel: int
    message: int
    end: int
    ends: frozenset[int]

    @classmethod
    def of(cls, vocabulary: Vocabulary) -> "HarmonyFormat | None":
        """None for a vocabulary that lacks one of them."""
        known = frozenset(vocabulary.control_texts())
        if not known.issuperset(MARKS):
            return None
        start, channel, message, end = (_token(vocabulary, text) for text in MARKS)
        ends = frozenset(_token(vocabulary, text) for text in ENDS if text in known)
        return cls(start, channel, message, end, ends)

    def stops(self, declared: Iterable[int]) -> frozenset[int]:
        """The tokens that end an answer: files also declare some that only end a part of it."""
        return self.ends.union(declared) - {self.start, self.channel, self.message, self.end}


def spelling(vocabulary: Vocabulary, many: int) -> list[bytes]:
    """The bytes of so many tokens as grammars see them, which have a place for the marks of channels."""
    table = vocabulary.bytes
    known = frozenset(vocabulary.control_texts())
    if not known.issuperset(MARKS):
        return [table.of(token) for token in range(many)]
    marks = [text for text in (*MARKS, CONSTRAIN) if text in known]
    found = [word if SPELT not in (word := table.of(token)) else b"" for token in range(many)]
    for text in marks:
        token = _token(vocabulary, text)
        found[token : token + 1] = [SPELT + text.encode()] if token < many else []
    return found


def unthought(message: Message) -> Message:
    """An earlier answer as templates of channels want it.

    With a call they take a thought or words, not both, and tell either as a thought.
    """
    message = with_reasoning_apart(message)
    if not (message.calls and message.thought and message.content):
        return message
    return replace(message, content="", thought=f"{message.thought}\n\n{message.content}")


def going_on(begun: str, hidden: Callable[[str], str], *, thinks: bool) -> str:
    """What stands behind ``<|start|>assistant`` of an answer that has ``begun``.

    Nothing where the model chooses its channel itself. ``hidden`` keeps control texts that were
    typed from becoming control tokens.
    """
    if not begun and thinks:
        return ""
    thought, said = split_reasoning(begun)
    if said is None and not thinks:
        said = ""
    parts = [(ANALYSIS, thought), (FINAL, said)]
    told = (f"{CHANNEL}{name}{MESSAGE}{hidden(text)}" for name, text in parts if text is not None)
    return f"{END}{START}assistant".join(told)


def writes_calls(form: CallForm | None) -> bool:
    """Whether a template writes calls in a channel, as its model does."""
    return (
        form is not None
        and form.before.strip() == f"to={FUNCTIONS}"
        and form.between.startswith(CHANNEL)
        and form.between.endswith(MESSAGE)
    )


def one_call_each(messages: Sequence[Message]) -> list[Message]:
    """Calls of one answer told one by one, each with its result: such templates show but the first."""
    told: list[Message] = []
    left = list(messages)
    while left:
        message = left.pop(0)
        if len(message.calls) < 2:
            told.append(message)
            continue
        results = list(takewhile(lambda each: each.role == "tool", left))
        del left[: len(results)]
        for place, call in enumerate(message.calls):
            told.append(replace(message, content="" if place else message.content, calls=(call,)))
            told += [each for each in results if each.answers == call.id]
        named = {call.id for call in message.calls}
        told += [each for each in results if each.answers not in named]
    return told


def _token(vocabulary: Vocabulary, text: str) -> int:
    return vocabulary.encode(text)[0]
