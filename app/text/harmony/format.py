"""Answers in channels (OpenAI's harmony format): reasoning, text and calls, each after a header.

After the prompt's ``<|start|>assistant`` a model writes

    <|channel|>analysis<|message|>REASONING<|end|>
    <|start|>assistant<|channel|>commentary<|message|>TEXT<|end|>
    <|start|>assistant<|channel|>commentary to=functions.NAME <|constrain|>json<|message|>{...}<|call|>
    <|start|>assistant<|channel|>final<|message|>ANSWER<|return|>

without these line breaks; every part may be missing.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from app.request import Message
from app.text.reasoning.tags import split_reasoning, with_separate_reasoning
from app.text.tools.call_format import CallForm
from app.text.vocabulary import Vocabulary
from engine.grammar.grammar import CONTROL_BYTE

START, CHANNEL, MESSAGE, END = MARKS = ("<|start|>", "<|channel|>", "<|message|>", "<|end|>")
CONSTRAIN = "<|constrain|>"  # comes before the kind of a call's arguments
ENDS = ("<|return|>", "<|call|>", "<|endoftext|>")  # of an answer; END ends one channel
ANALYSIS, COMMENTARY, FINAL = "analysis", "commentary", "final"
FUNCTIONS = "functions."


@dataclass(frozen=True, slots=True)
class HarmonyTokens:
    """The control tokens of a vocabulary whose answers are written in channels."""

    start: int
    channel: int
    message: int
    end: int
    ends: frozenset[int]
    constrains: bool = True
    """Whether there is a token for CONSTRAIN."""

    @classmethod
    def of(cls, vocabulary: Vocabulary) -> "HarmonyTokens | None":
        """None for a vocabulary that lacks one of them."""
        known = frozenset(vocabulary.control_texts())
        if not known.issuperset(MARKS):
            return None
        start, channel, message, end = (_token(vocabulary, text) for text in MARKS)
        ends = frozenset(_token(vocabulary, text) for text in ENDS if text in known)
        return cls(start, channel, message, end, ends, constrains=CONSTRAIN in known)

    def stops(self, declared: Iterable[int]) -> frozenset[int]:
        """The tokens that end an answer: files also declare some that end one channel only."""
        return self.ends.union(declared) - {self.start, self.channel, self.message, self.end}


def grammar_bytes(vocabulary: Vocabulary, count: int) -> list[bytes]:
    """The bytes of the first ``count`` tokens for grammars: the marks of channels have some, too."""
    table = vocabulary.bytes
    known = frozenset(vocabulary.control_texts())
    if not known.issuperset(MARKS):
        return [table.of(token) for token in range(count)]
    marks = [text for text in (*MARKS, CONSTRAIN) if text in known]
    found = [
        word if CONTROL_BYTE not in (word := table.of(token)) else b"" for token in range(count)
    ]
    for text in marks:
        token = _token(vocabulary, text)
        found[token : token + 1] = [CONTROL_BYTE + text.encode()] if token < count else []
    return found


def for_template(message: Message) -> Message:
    """An earlier answer as templates with channels take it.

    Together with a call they take reasoning or text, not both, and write either as reasoning.
    """
    message = with_separate_reasoning(message)
    if not (message.calls and message.reasoning and message.content):
        return message
    return replace(message, content="", reasoning=f"{message.reasoning}\n\n{message.content}")


def continuation(prefix: str, hide: Callable[[str], str], *, thinks: bool) -> str:
    """What comes after ``<|start|>assistant`` where the answer starts with ``prefix``.

    Empty where the model chooses its channel itself. ``hide`` keeps typed control texts from
    becoming control tokens.
    """
    if not prefix and thinks:
        return ""
    reasoning, text = split_reasoning(prefix)
    if text is None and not thinks:
        text = ""
    parts = [(ANALYSIS, reasoning), (FINAL, text)]
    channels = (f"{CHANNEL}{name}{MESSAGE}{hide(part)}" for name, part in parts if part is not None)
    return f"{END}{START}assistant".join(channels)


def writes_calls(form: CallForm | None) -> bool:
    """Whether a template writes calls in a channel, as its model does."""
    return (
        form is not None
        and form.before.strip() == f"to={FUNCTIONS}"
        and form.between.startswith(CHANNEL)
        and form.between.endswith(MESSAGE)
    )


def _token(vocabulary: Vocabulary, text: str) -> int:
    return vocabulary.encode(text)[0]
