"""Conversations to token ids and back, with the tokenizer and template of the model's files."""

import re
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from app.reasoning_effort import AS_TAUGHT, THINKING, Thinking, variables_for
from app.request import Message, Tool
from app.text.detokenizer import Detokenizer, TextStream
from app.text.harmony.calls import held_in_channels
from app.text.harmony.detokenizer import HarmonyDetokenizer
from app.text.harmony.format import (
    START,
    HarmonyFormat,
    going_on,
    one_call_each,
    unthought,
    writes_calls,
)
from app.text.output_parser import with_reasoning_apart
from app.text.reasoning import markers as thoughts
from app.text.reasoning.detokenizer import ReasoningDetokenizer
from app.text.reasoning.markers import ReasoningMarkers, SpeltMarks
from app.text.template import NO_VARIABLES, ChatTemplate
from app.text.tools.answer_grammar import Answers, held, held_when_called
from app.text.tools.call_format import TOLD, CallForm
from app.text.tools.prompt_fallback import tools_in_words
from app.text.tools.template_inspection import deduced
from app.text.vocabulary import FileVocabulary, FolderVocabulary, Vocabulary
from engine.errors import InvalidRequest, ModelUnusable
from engine.models.gguf.header import read_header
from engine.speculation.common_prefix import common_prefix

_QUESTIONS = "What", "0"  # that have no beginning in common
GGUF_SPECIALS = ("bos", "eos", "unknown", "padding", "seperator")  # the format spells it so

THINK, THOUGHT_OVER = "<think>", "\n</think>\n\n"


class Prompt(NamedTuple):
    """What the model reads before its answer."""

    ids: tuple[int, ...]
    thought: str  # that the prompt opens already, so that the answer goes on inside of it


class ChatText:
    """Text of one model; what people write never becomes a control token."""

    def __init__(
        self, vocabulary: Vocabulary, template: ChatTemplate, stops: Iterable[int]
    ) -> None:
        self._vocabulary, self._template = vocabulary, template
        self._control = _control_pattern(vocabulary.control_texts())
        self._channels = HarmonyFormat.of(vocabulary)
        self.stop_tokens = self._channels.stops(stops) if self._channels else frozenset(stops)

    @classmethod
    def load(cls, place: Path) -> "ChatText":
        """From the model's folder or GGUF file; raises ModelUnusable."""
        if place.is_file():
            return _from_file(place)
        vocabulary = FolderVocabulary.load(place)
        return cls(vocabulary, ChatTemplate.load(place), vocabulary.stop_tokens(place))

    @property
    def call_form(self) -> CallForm:
        """How this model's answers show a call of a tool."""
        return self._own_form or TOLD

    @cached_property
    def answers(self) -> Answers:
        """What answers with tools are held to."""
        if self.calls_in_channels:
            return Answers(self.call_form, held_in_channels)
        return Answers(self.call_form, held_when_called if self._channels else held)

    @cached_property
    def _template_form(self) -> CallForm | None:
        """As its template writes calls."""
        return deduced(self._template.render, self._control)

    @cached_property
    def _own_form(self) -> CallForm | None:
        """The same, where all of it is text; of other models None."""
        form = self._template_form
        if form is None or not all(map(self._is_text, form.texts)):
            return None
        return form

    @cached_property
    def _thought_marks(self) -> ReasoningMarkers | None:
        """What its template writes around thoughts, where that is to be translated."""
        if self._channels is not None or not self._template.takes_thoughts:
            return None
        return thoughts.deduced(self._template.render, self._control)

    @cached_property
    def _spelt_marks(self) -> SpeltMarks | None:
        """The same as answers show it."""
        if self._thought_marks is None:
            return None
        return thoughts.spelt(self._thought_marks, self._vocabulary, self._control)

    @cached_property
    def calls_in_channels(self) -> bool:
        """Whether calls have a channel of their own, which answers open, and its template knows of it."""
        return self._channels is not None and writes_calls(self._template_form)

    @cached_property
    def _takes_system(self) -> bool:
        """Whether its template tells a system message: some refuse one, some pass it over."""
        secret = secrets.token_hex(8)
        try:
            return secret in self._template.render(
                [Message("system", secret), Message("user", _QUESTIONS[0])]
            )
        except InvalidRequest:
            return False

    def encode_chat(
        self, messages: Sequence[Message], begun: str = "", tools: Sequence[Tool] = ()
    ) -> tuple[int, ...]:
        """The tokens of ``prompt``."""
        return self.prompt(messages, begun, tools).ids

    def prompt(
        self,
        messages: Sequence[Message],
        begun: str = "",
        tools: Sequence[Tool] = (),
        *,
        thinks: bool = True,
        variables: Mapping[str, Any] = NO_VARIABLES,
    ) -> Prompt:
        """The prompt for the assistant's next message, or for the rest of one that has ``begun``.

        ``tools`` are told as the model's template does, or in words. A thought that the template opens
        is over where an answer is to begin with something else, or must not think. ``variables`` are
        the template's. Raises InvalidRequest.
        """
        mask = _Mask(self._control)
        rendered = self._rendered(mask, messages, tools, variables)
        if self._channels is not None:
            rendered += going_on(begun, mask.hidden, thinks=thinks)
            return Prompt(self._encoded(mask, rendered), "")
        if self._thought_marks is not None:
            rendered, thought = thoughts.going_on(
                rendered, begun, self._thought_marks, mask.hidden, thinks=thinks
            )
            return Prompt(self._encoded(mask, rendered), thought)
        thought = opened(rendered)
        rest = begun.removeprefix(thought)
        if thought and (not thinks or (begun and rest == begun)):
            rendered += THOUGHT_OVER
        ids = self._encoded(mask, rendered + mask.hidden(rest))
        return Prompt(ids, thought if thinks and not begun else "")

    def _encoded(self, mask: "_Mask", text: str) -> tuple[int, ...]:
        """Tokens of a prompt, none of them a control token that somebody typed."""
        ids: list[int] = []
        for place, part in enumerate(mask.parts(text)):
            typed = place % 2 == 1
            ids += self._vocabulary.encode_typed(part) if typed else self._vocabulary.encode(part)
        return tuple(ids)

    def _rendered(
        self,
        mask: "_Mask",
        messages: Sequence[Message],
        tools: Sequence[Tool],
        variables: Mapping[str, Any],
    ) -> str:
        """The conversation as the template writes it, typed control texts masked."""
        if self._channels is not None:
            messages = [unthought(message) for message in messages]
        elif self._template.takes_thoughts:
            messages = [with_reasoning_apart(message) for message in messages]
        if self.calls_in_channels:
            messages = one_call_each(messages)
        spoken = [mask.masked(message) for message in messages]
        offered = [mask.masked_tool(tool) for tool in tools]
        has_tools = bool(tools) or any(each.calls or each.role == "tool" for each in messages)
        if has_tools and self._own_form is None and not self.calls_in_channels:
            spoken, offered = tools_in_words(spoken, offered), []
        if spoken and spoken[0].role == "system" and not self._takes_system:
            spoken = _without_system(spoken)
        return self._template.render(spoken, offered, mask.within(variables))

    def encode_ahead(
        self,
        messages: Sequence[Message],
        begun: str = "",
        variables: Mapping[str, Any] = NO_VARIABLES,
    ) -> tuple[int, ...]:
        """What every prompt begins with that asks another question behind these messages.

        ``begun`` is what the question begins with: files, say. Where the template tells a finished
        answer in another way than it was given, without its thoughts, that is what stands here.
        Raises InvalidRequest.
        """
        one, other = (
            self.prompt([*messages, Message("user", begun + asked)], variables=variables).ids
            for asked in _QUESTIONS
        )
        return one[: common_prefix(one, other)]

    def encode_text(self, text: str) -> tuple[int, ...]:
        """A prompt that a program wrote, to be gone on with as it stands.

        Whoever writes it writes the model's own control texts too, for the middle of a file say, so
        they count as such here. What every text of the model begins with stands before it once.
        """
        ids, begin = self._vocabulary.encode(text), self._vocabulary.begin()
        return tuple(ids if ids[: len(begin)] == begin else [*begin, *ids])

    @cached_property
    def thinking(self) -> tuple[Thinking, ...]:
        """How much of it can be asked of this model: each of these changes what it reads."""
        seen = {self._asked_to_think(AS_TAUGHT)}
        found: list[Thinking] = []
        for thinking in THINKING:
            prompt = self._asked_to_think(thinking)
            if prompt not in seen and prompt is not None:
                found.append(thinking)
            seen.add(prompt)
        return tuple(found)

    def _asked_to_think(self, thinking: Thinking) -> tuple[int, ...] | None:
        """A prompt; None where the template refuses that."""
        asked, tools_in_words = [Message("user", _QUESTIONS[0])], variables_for(thinking)
        try:
            return self.prompt(asked, thinks=thinking != "off", variables=tools_in_words).ids
        except InvalidRequest:
            return None

    def count(self, text: str) -> int:
        """Tokens of a text that is put into a message."""
        return len(self._vocabulary.encode(text))

    def detokenizer(self, begun: str = "", thought: str = "") -> TextStream:
        """For one answer, or the rest of one that has ``begun``, piece by piece.

        ``thought`` is what the prompt has opened: ``Prompt.thought``.
        """
        table = self._vocabulary.bytes
        if self._spelt_marks is not None:
            if begun or thought:
                return ReasoningDetokenizer.behind(begun or thought, self._spelt_marks, table)
            return ReasoningDetokenizer(self._spelt_marks, table)
        if self._channels is None:
            return Detokenizer(table, begins=not begun)
        if begun:
            return HarmonyDetokenizer.behind(begun, self._channels, table)
        return HarmonyDetokenizer(self._channels, table)

    def detokenizer_behind(self, text: str) -> TextStream:
        """For what goes on with a text that a program wrote: see ``encode_text``."""
        table = self._vocabulary.bytes
        if self._channels is None:
            return Detokenizer(table, begins=False)
        found = HarmonyDetokenizer(self._channels, table, begins=False)
        _, mark, part = text.rpartition(START)
        found.feed(self._vocabulary.encode(mark + part) if mark else ())
        return found

    def token_bytes(self, token: int) -> bytes:
        """What one token stands for: perhaps a part of a character, of a control token nothing."""
        return self._vocabulary.bytes.of(token)

    def decode(self, ids: Iterable[int]) -> str:
        """The text of a whole answer."""
        stream = self.detokenizer()
        return stream.feed(ids) + stream.end()

    def _is_text(self, text: str) -> bool:
        """Whether an answer that says this shows it: control tokens have no text."""
        return self.decode(self._vocabulary.encode(text)).strip() == text.strip()


def _without_system(messages: Sequence[Message]) -> list[Message]:
    """What the first message says stands before what the person says first."""
    system, *others = messages
    if not others or others[0].role != "user":
        return [replace(system, role="user"), *others]
    first = replace(others[0], content=f"{system.content}\n\n{others[0].content}")
    return [first, *others[1:]]


def opened(rendered: str) -> str:
    """The beginning of a thought that a prompt ends with, and the space behind it."""
    before = rendered.rstrip().removesuffix(THINK)
    return rendered[len(before) :] if len(before) < len(rendered.rstrip()) else ""


class _Mask:
    """Replaces control texts in messages by marks that nobody can guess, and takes them back.

    Ordinary conversations have none, so their prompt is encoded in one go, exactly as the
    tokenizer would; only around a mark is the text encoded in parts.
    """

    def __init__(self, control: re.Pattern[str] | None) -> None:
        self._control = control
        self._secret = secrets.token_hex(16)
        self._hidden: list[str] = []

    def masked(self, message: Message) -> Message:
        calls = tuple(
            replace(call, name=self.hidden(call.name), arguments=self.within(call.arguments))
            for call in message.calls
        )
        content, thought = self.hidden(message.content), self.hidden(message.thought)
        return replace(message, content=content, calls=calls, thought=thought)

    def masked_tool(self, tool: Tool) -> Tool:
        return replace(
            tool,
            name=self.hidden(tool.name),
            description=self.hidden(tool.description),
            parameters=self.within(tool.parameters),
        )

    def within(self, value: Any) -> Any:
        """Every text in a JSON value masked, names among them."""
        if isinstance(value, str):
            return self.hidden(value)
        if isinstance(value, Mapping):
            return {self.hidden(name): self.within(inner) for name, inner in value.items()}
        if isinstance(value, list):
            return [self.within(inner) for inner in value]
        return value

    def hidden(self, text: str) -> str:
        return text if self._control is None else self._control.sub(self._hide, text)

    def parts(self, rendered: str) -> list[str]:
        """The rendered text in parts; every second one is a control text that was typed."""
        pieces = re.split(f"{self._secret}:([0-9]+);", rendered)
        return [
            self._hidden[int(piece)] if place % 2 else piece for place, piece in enumerate(pieces)
        ]

    def _hide(self, match: re.Match[str]) -> str:
        self._hidden.append(match.group())
        return f"{self._secret}:{len(self._hidden) - 1};"


def _control_pattern(texts: Iterable[str]) -> re.Pattern[str] | None:
    """Matches every control token's text; the longest first, as one may begin another."""
    ordered = sorted(texts, key=len, reverse=True)
    return re.compile("|".join(map(re.escape, ordered))) if ordered else None


def _from_file(file: Path) -> ChatText:
    """All of it stands in the GGUF file's metadata."""
    metadata = read_header(file).metadata
    source = metadata.get("tokenizer.chat_template")
    if not isinstance(source, str):
        raise ModelUnusable(
            f"{file} has no chat template (tokenizer.chat_template); choose an "
            "instruction-tuned model"
        )
    vocabulary = FileVocabulary(file)
    ids = {name: metadata.get(f"tokenizer.ggml.{name}_token_id") for name in GGUF_SPECIALS}
    names = {"unknown": "unk", "padding": "pad", "seperator": "sep"}
    specials = {
        f"{names.get(name, name)}_token": vocabulary.text(token)
        for name, token in ids.items()
        if isinstance(token, int)
    }
    return ChatText(vocabulary, ChatTemplate(source, specials, foreign=True), vocabulary.ends)
