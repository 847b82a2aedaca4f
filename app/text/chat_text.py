"""Conversations to token ids and back, with the tokenizer and template of the model's files."""

import re
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple

from app.request import AS_TAUGHT, THINKING, Message, Thinking, Tool, ToolUse, variables_for
from app.text.answer_formats import AnswerFormat, HarmonyFormat, PlainFormat, ReasoningFormat
from app.text.conversation import ConversationForm, with_ids
from app.text.detokenizer import Detokenizer
from app.text.harmony.format import HarmonyTokens, writes_calls
from app.text.named_templates import NoTemplate, template_source
from app.text.own_sampling import Own, of_folder, of_gguf
from app.text.reasoning import markers
from app.text.reasoning.tags import AnswerStream, joined
from app.text.template import NO_VARIABLES, ChatTemplate, read_json
from app.text.tools.call_format import DEFAULT_FORM, CallForm
from app.text.tools.prompt_fallback import tools_in_words
from app.text.tools.template_inspection import deduced
from app.text.vocabulary import FileVocabulary, FolderVocabulary, Vocabulary
from engine.errors import InvalidRequest, ModelUnusable
from engine.grammar.grammar import Grammar
from engine.models.gguf.header import read_header
from engine.speculation.common_prefix import common_prefix

TURN_MARK = re.compile(
    r"[<\[#|:]"
)  # in a text that is a mark; a bare word may be part of an answer
SHORTEST_END = 4  # characters: a shorter text may be part of an answer
KEPT = 8  # grammars, one for a set of tools
_QUESTIONS = "What", "0"  # without a common beginning
GGUF_SPECIALS = ("bos", "eos", "unknown", "padding", "seperator")  # spelled as in the format


class Prompt(NamedTuple):
    """What the model reads before its answer."""

    ids: tuple[int, ...]
    opened: str  # the reasoning tag that the prompt has opened: the answer starts inside it


class ChatText:
    """Text of one model; what people type never becomes a control token."""

    def __init__(
        self,
        vocabulary: Vocabulary,
        template: ChatTemplate | None,
        stops: Iterable[int],
        own_sampling: Own = NO_VARIABLES,
        *,
        borrows: bool = False,
    ) -> None:
        self.chats = template is not None  # a base model only continues texts
        self.borrows = borrows  # its template is one that a person chose
        self.own_sampling = own_sampling  # what the model's maker recommends
        self._vocabulary, self._template = vocabulary, template or NoTemplate()
        self._control = _control_pattern(vocabulary.control_texts())
        self._harmony = HarmonyTokens.of(vocabulary)
        self._stops = frozenset(stops)

    @classmethod
    def load(cls, place: Path, template: str = "") -> "ChatText":
        """From the model's folder or GGUF file; raises ModelUnusable, SettingsError.

        ``template`` is the name or the file of one for a model that brings none, or a broken one.
        """
        instead = template_source(template) if template else ""
        if place.is_file():
            return _from_file(place, instead)
        vocabulary = FolderVocabulary.load(place)
        own = of_folder(read_json(place / "generation_config.json"))
        found = _working(partial(ChatTemplate.load, place), instead)
        given = found or (ChatTemplate.load(place, instead) if instead else None)
        borrows = found is None and given is not None
        return cls(vocabulary, given, vocabulary.stop_tokens(place), own, borrows=borrows)

    @cached_property
    def stop_tokens(self) -> frozenset[int]:
        """Tokens that end an answer: those of the configs, and the one that the template writes."""
        if self._harmony:
            return self._harmony.stops(self._stops)
        ids = self._vocabulary.encode(self._turn_end) if self._turn_end else []
        return self._stops | set(ids if len(ids) == 1 else ())

    @cached_property
    def stop_texts(self) -> tuple[str, ...]:
        """What ends an answer where the template writes several tokens after it."""
        if self._harmony or not self._turn_end:
            return ()
        return (self._turn_end,) if len(self._vocabulary.encode(self._turn_end)) > 1 else ()

    @cached_property
    def _turn_end(self) -> str:
        """What the template writes between an answer and the next question: its control text or line."""
        question, answer, following = (secrets.token_hex(8) for _ in range(3))
        turns = [("user", question), ("assistant", answer), ("user", following)]
        try:
            text = self._template.render([Message(role, content) for role, content in turns])
        except InvalidRequest:
            return ""
        between = text.partition(answer)[2].partition(following)
        lines = between[0].split("\n") if between[1] else []
        control = self._control.search(between[0]) if self._control and lines else None
        if control is not None:
            return control.group()
        first = next((line.strip() for line in lines if line.strip()), "")
        return first if TURN_MARK.search(first) and len(first) >= SHORTEST_END else ""

    @property
    def call_form(self) -> CallForm:
        """How this model writes a tool call."""
        return self._own_form or DEFAULT_FORM

    @cached_property
    def held(self) -> Callable[[ToolUse], Grammar | None]:
        """The grammar of an answer with tools, kept since agents send the same ones in every request.

        Raises InvalidRequest.
        """
        return lru_cache(KEPT)(partial(self.format.grammar, self.call_form))

    @cached_property
    def format(self) -> AnswerFormat:
        """How this model writes answers."""
        vocabulary, takes_reasoning = self._vocabulary, self._template.takes_reasoning
        if self._harmony is not None:
            in_channels = writes_calls(self._template_form)
            return HarmonyFormat(vocabulary, self._harmony, calls_in_channels=in_channels)
        render, control = self._template.render, self._control
        marks = markers.deduced(render, control) if takes_reasoning else None
        if marks is None:
            return PlainFormat(vocabulary, takes_reasoning=takes_reasoning)
        return ReasoningFormat(vocabulary, marks, markers.answer_marks(marks, vocabulary, control))

    @property
    def calls_in_channels(self) -> bool:
        """Whether calls have a channel of their own, which answers open."""
        return self.format.calls_in_channels

    @cached_property
    def _template_form(self) -> CallForm | None:
        """How the template writes a call."""
        if not self.chats:
            return None
        return deduced(self._template.render, self._control)

    @cached_property
    def _own_form(self) -> CallForm | None:
        """The same where all of it is text, so that answers show it; else None."""
        form = self._template_form
        if form is None or not all(map(self._is_text, form.texts)):
            return None
        return form

    @cached_property
    def _form(self) -> ConversationForm:
        """How the template takes conversations."""
        return ConversationForm(self._template.render)

    def encode_chat(
        self, messages: Sequence[Message], prefix: str = "", tools: Sequence[Tool] = ()
    ) -> tuple[int, ...]:
        """The tokens of ``prompt``."""
        return self.prompt(messages, prefix, tools).ids

    def prompt(
        self,
        messages: Sequence[Message],
        prefix: str = "",
        tools: Sequence[Tool] = (),
        *,
        thinks: bool = True,
        variables: Mapping[str, Any] = NO_VARIABLES,
    ) -> Prompt:
        """Render and encode in one step: see ``render`` and ``RenderedChat.prompt``."""
        return self.render(messages, tools, variables).prompt(prefix, thinks=thinks)

    def render(
        self,
        messages: Sequence[Message],
        tools: Sequence[Tool] = (),
        variables: Mapping[str, Any] = NO_VARIABLES,
    ) -> "RenderedChat":
        """The conversation as the template writes it, up to the assistant's next message.

        ``tools`` are described by the template, or else in words. Raises InvalidRequest.
        """
        mask = _Mask(self._control)
        messages = self.format.messages(with_ids(messages))
        masked = [mask.masked(message) for message in messages]
        offered = [mask.masked_tool(tool) for tool in tools]
        has_tools = bool(tools) or any(each.calls or each.role == "tool" for each in messages)
        if has_tools and self._own_form is None and not self.calls_in_channels:
            masked, offered = tools_in_words(masked, offered), []
        fitted = self._form.fitted(masked, offers=bool(offered))
        text = self._template.render(fitted, offered, mask.within(variables))
        return RenderedChat(self.format, self._vocabulary, mask, text)

    def encode_ahead(
        self,
        messages: Sequence[Message],
        prefix: str = "",
        variables: Mapping[str, Any] = NO_VARIABLES,
    ) -> tuple[int, ...]:
        """The common start of all prompts that ask another question after these messages.

        ``prefix`` is the start of the question, such as files. Templates may write a finished answer
        in another way, without its reasoning; then this has that other way. Raises InvalidRequest.
        """
        one, other = (
            self.prompt([*messages, Message("user", prefix + question)], variables=variables).ids
            for question in _QUESTIONS
        )
        return one[: common_prefix(one, other)]

    def encode_text(self, text: str) -> tuple[int, ...]:
        """A prompt that a program wrote, to be continued as it is.

        Such programs write the model's own control texts, for example for the middle of a file, so
        they count as control tokens here. The token that begins every text comes first, once.
        """
        ids, begin = self._vocabulary.encode(text), self._vocabulary.begin()
        return tuple(ids if ids[: len(begin)] == begin else [*begin, *ids])

    @cached_property
    def thinking(self) -> tuple[Thinking, ...]:
        """The amounts of reasoning that change what this model reads."""
        seen = {self._prompt_with(AS_TAUGHT)}
        found: list[Thinking] = []
        for thinking in THINKING:
            prompt = self._prompt_with(thinking)
            if prompt not in seen and prompt is not None:
                found.append(thinking)
            seen.add(prompt)
        return tuple(found)

    def _prompt_with(self, thinking: Thinking) -> tuple[int, ...] | None:
        """A prompt that asks for this amount; None where the template refuses it."""
        question, variables = [Message("user", _QUESTIONS[0])], variables_for(thinking)
        try:
            return self.prompt(question, thinks=thinking != "off", variables=variables).ids
        except InvalidRequest:
            return None

    def count(self, text: str) -> int:
        """Tokens of a text inside a message."""
        return len(self._vocabulary.encode(text))

    def detokenizer(self, prefix: str = "", opened: str = "") -> AnswerStream:
        """For one answer, or its rest after ``prefix``; ``opened`` as in ``Prompt``."""
        return self.format.detokenizer(prefix, opened)

    def text_detokenizer(self, text: str) -> AnswerStream:
        """For the rest of a text that a program wrote: see ``encode_text``."""
        return self.format.text_detokenizer(text)

    def token_bytes(self, token: int) -> bytes:
        """The bytes of one token: perhaps a part of a character; none of a control token."""
        return self._vocabulary.bytes.of(token)

    def spelled(self, ids: Iterable[int]) -> str:
        """The text of tokens, control tokens left out."""
        return b"".join(map(self.token_bytes, ids)).decode(errors="replace")

    def decode(self, ids: Iterable[int]) -> str:
        """The tagged text of a whole answer."""
        stream = self.detokenizer()
        return joined([*stream.feed(ids), *stream.end()])

    def _is_text(self, text: str) -> bool:
        """Whether an answer shows this text: control tokens have no text."""
        stream = Detokenizer(self._vocabulary.bytes)
        shown = stream.feed(self._vocabulary.encode(text)) + stream.end()
        return shown.strip() == text.strip()


@dataclass(frozen=True, slots=True)
class RenderedChat:
    """A conversation as the template wrote it; any number of prompts are made of it."""

    _format: AnswerFormat
    _vocabulary: Vocabulary
    _mask: "_Mask"
    _text: str

    def prompt(self, prefix: str = "", *, thinks: bool = True) -> Prompt:
        """The prompt for the next message, or for its rest after ``prefix``.

        Reasoning that the template opens is closed where the answer starts with something else, or
        must not reason.
        """
        hide = self._mask.hidden
        text, opened = self._format.complete(self._text, prefix, hide, thinks=thinks)
        ids: list[int] = []
        for place, part in enumerate(self._mask.parts(text)):
            typed = place % 2 == 1
            ids += self._vocabulary.encode_typed(part) if typed else self._vocabulary.encode(part)
        return Prompt(tuple(ids), opened)


class _Mask:
    """Replaces typed control texts in messages by random marks, and finds them again in the prompt.

    Ordinary conversations have none, so their prompt is encoded in one go, exactly as the tokenizer
    does it; only around a mark the text is encoded in parts.
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
        content, reasoning = self.hidden(message.content), self.hidden(message.reasoning)
        return replace(message, content=content, calls=calls, reasoning=reasoning)

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


def _from_file(file: Path, instead: str) -> ChatText:
    """From the metadata of a GGUF file; ``instead`` is the template for one that has none."""
    metadata = read_header(file).metadata
    written = metadata.get("tokenizer.chat_template")
    source = written if isinstance(written, str) and written.strip() else ""
    vocabulary = FileVocabulary(file)
    ids = {name: metadata.get(f"tokenizer.ggml.{name}_token_id") for name in GGUF_SPECIALS}
    names = {"unknown": "unk", "padding": "pad", "seperator": "sep"}
    specials = {
        f"{names.get(name, name)}_token": vocabulary.text(token)
        for name, token in ids.items()
        if isinstance(token, int)
    }

    def made(source: str) -> ChatTemplate | None:
        return ChatTemplate(source, specials, foreign=True) if source else None

    own = _working(partial(made, source), instead)
    given = own or made(instead)
    borrows = own is None and given is not None
    return ChatText(vocabulary, given, vocabulary.ends, of_gguf(metadata), borrows=borrows)


def _working(load: Callable[[], ChatTemplate | None], instead: str) -> ChatTemplate | None:
    """The model's own template; None without one, or for a broken one that a person replaces."""
    try:
        return load()
    except ModelUnusable:
        if not instead:
            raise
        return None
