"""One loaded model: its files, its tokenizer, its process, and requests as its engine takes them."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate
from math import ceil
from pathlib import Path

from app.chat.answering_model import ContextUse
from app.chat.engine_answer import AnswerReader, EngineAnswer
from app.chat.loader import Loader
from app.chat.reply import RunningReply
from app.chat.stored_answer import AnswerSink
from app.history.records import Conditions
from app.history.task_class import task_class, temperature_class
from app.models.catalog import CatalogEntry, find_entry, load_catalog, resolve
from app.observable import Observable
from app.placement.machine import machine_name, price_key
from app.placement.plans import place_with_dtype, weights_size
from app.request import (
    AS_TAUGHT,
    ChatRequest,
    Message,
    PartialAnswer,
    Thinking,
    ToolUse,
    check_request,
    variables_for,
)
from app.settings import Settings
from app.text.chat_text import ChatText, Prompt
from app.text.detokenizer import StopFilter
from app.text.formats.lark import either
from app.text.named_templates import document
from app.text.output_parser import OutputParser
from app.text.own_sampling import with_own
from app.text.reasoning.tags import split_reasoning
from app.text.tools.call_parser import ToolCallParser
from app.worker.child import import_ahead
from app.worker.worker import EngineWorker
from engine.errors import ContextOverflow, InvalidRequest
from engine.grammar.grammar import Grammar
from engine.hardware.footprint import INT8
from engine.hardware.plan import Plan
from engine.request import GenerationRequest, ModelFacts, ModelSpec, Prior
from engine.speculation.common_prefix import common_prefix

log = logging.getLogger(__name__)

AROUND = 8  # tokens that a template puts around a message; more comes out of the answer's share
ANSWER = 0.25  # share of the context that is kept free for the answer


@dataclass(frozen=True, slots=True)
class PreparedRequest:
    """A request that the engine can take."""

    model: "LoadedModel"
    chat: ChatRequest
    request: GenerationRequest
    conditions: Conditions  # that its measurements are filed under
    continued: PartialAnswer  # the stored answer that this one continues
    opened: str = ""  # as in ``Prompt``

    @property
    def freed(self) -> tuple[str, ...]:
        """What its schemas limit and its grammar does not, in words."""
        return self.request.grammar.freed if self.request.grammar else ()

    @property
    def prompt_tokens(self) -> int:
        """Tokens of the prompt, those that may be cached included."""
        return len(self.request.prompt)

    @property
    def first_tokens(self) -> tuple[int, ...]:
        """The first token of the prompt."""
        return self.request.prompt[:1]

    def with_priors(self, priors: tuple[Prior, ...]) -> "PreparedRequest":
        """The same with what earlier answers measured."""
        return replace(self, request=replace(self.request, priors=priors))

    def start(self, sink: AnswerSink, news: Observable | None = None) -> RunningReply:
        """Let the engine answer."""
        return self.model.start(self, sink, news)

    def choice(self, index: int) -> "PreparedRequest":
        """The same prompt with the seed of one of several choices."""
        chat = self.chat.choice(index)
        return replace(self, chat=chat, request=replace(self.request, sampling=chat.sampling))


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model that answers; ``open`` makes a real one."""

    entry: CatalogEntry
    spec: ModelSpec
    facts: ModelFacts
    worker: EngineWorker
    text: ChatText
    plan: Plan | None = None  # where it lies, and why; None for models that fit anywhere
    template: str = ""  # the chat template that it borrows where it has none

    @classmethod
    async def open(
        cls,
        settings: Settings,
        model: str,
        draft: str | None = None,
        dtype: str | None = None,
        loader: Loader | None = None,
    ) -> "LoadedModel":
        """Load ``model`` (a catalogue name or a folder), drafting with the model ``draft`` if given.

        ``dtype`` names the number format of its weights; None: the catalogue's, or the plan's.
        Raises UnknownModel, ModelUnusable, WorkerCrashed.
        """
        await asyncio.to_thread(import_ahead)
        entry = find_entry(load_catalog(settings), model)
        spec = await asyncio.to_thread(resolve, settings, model, draft)
        found = await asyncio.to_thread(place_with_dtype, settings, spec, dtype or entry.dtype)
        return await cls.load(entry, found.spec, found.plan, settings, loader)

    @classmethod
    async def load(
        cls,
        entry: CatalogEntry,
        spec: ModelSpec,
        plan: Plan | None,
        settings: Settings,
        loader: Loader | None = None,
    ) -> "LoadedModel":
        """Load a model whose spec is known; raises ModelUnusable, WorkerCrashed, HistoryError."""
        loader = loader or Loader()
        key = await asyncio.to_thread(price_key, spec)
        known = await asyncio.to_thread(loader.kept.of, key) if loader.kept else None
        worker = EngineWorker(
            replace(spec, calibration=known, measure_later=loader.serving),
            level=settings.log_level.upper(),
            keep_alive=settings.keep_alive,
            measured=partial(loader.keep, key),
        )
        loader.worker, loader.weights = worker, weights_size(Path(spec.folder))
        template = loader.templates.of(spec.folder, settings.chat_template)
        reading = asyncio.to_thread(ChatText.load, Path(spec.folder), template)
        try:
            facts, text = await asyncio.gather(worker.start(), reading)
        except BaseException:
            await worker.close()
            raise
        finally:
            loader.worker = None
        return cls(entry, spec, facts, worker, text, plan, template)

    def _conditions(self, chat: ChatRequest) -> Conditions:
        draft = self.spec.draft_folder
        numbers = INT8 if self.spec.weights == INT8 else self.spec.dtype
        return Conditions(
            model=self.entry.name,
            draft=Path(draft).name if draft else "",
            machine=machine_name(self.spec.device, numbers),
            temperature=temperature_class(chat.sampling),
            task=task_class(chat.conversation_or_text),
        )

    def prepare(self, chat: ChatRequest, continued: PartialAnswer | None = None) -> PreparedRequest:
        """Render and encode the prompt once, for any number of choices.

        Raises InvalidRequest, UnknownDrafter, ContextOverflow.
        """
        chat = self._spelled(chat)
        check_request(chat)
        own = self.text.own_sampling
        chat = replace(chat, sampling=with_own(chat.sampling, own, chat.unset), unset=frozenset())
        self._check_drafter_runs(chat.drafter)
        continued = continued or PartialAnswer()
        prefix = continued.text or chat.prefix
        prompts = self._prompts(chat, prefix)
        ids, opened = prompts(prefix)
        left = self.facts.context - len(ids)
        if left < 1:
            raise ContextOverflow(len(ids) + 1, self.facts.context)
        predicted = prompts(prefix + chat.prediction).ids if chat.prediction else ids
        grammar = self._grammar(chat)
        request = GenerationRequest(
            prompt=ids,
            max_tokens=left if chat.max_tokens is None else chat.max_tokens,
            sampling=chat.sampling,
            stop_tokens=self.text.stop_tokens,
            session=chat.conversation,
            task=task_class(chat.conversation_or_text),
            drafter=chat.drafter,
            prediction=predicted[common_prefix(ids, predicted) :],
            logprobs=chat.logprobs,
            grammar=grammar,
            begun=self._begun(chat, ids, prompts) if grammar and prefix else 0,
            echo=chat.echo and chat.logprobs is not None,
        )
        return PreparedRequest(self, chat, request, self._conditions(chat), continued, opened)

    async def prompt_tokens(self, chat: ChatRequest) -> int:
        """Tokens of the prompt, even where the context is too short; raises InvalidRequest."""
        check_request(chat)
        return await asyncio.to_thread(
            lambda: len(self._prompts(chat, chat.prefix)(chat.prefix).ids)
        )

    def seen(self, messages: Sequence[Message]) -> list[Message]:
        """The messages that fit the context: see ``first_seen``."""
        if sum(len(one.content.encode()) + AROUND for one in messages) <= self.facts.context // 2:
            return [*messages]  # no text has more tokens than bytes
        sizes = [self.text.count(one.content) for one in messages]
        first = first_seen(messages, sizes, self.facts.context)
        system = messages[:1] if first and messages[0].role == "system" else []
        return [*system, *messages[first:]]

    def context_use(self, messages: Sequence[Message]) -> ContextUse:
        """How much of the context these take, and how many are left out."""
        seen = self.seen(messages)
        encode = self.text.encode_chat if self.text.chats else self._encode_document
        used = len(encode(seen)) if seen else 0
        return ContextUse(used, len(messages) - len(seen))

    def _encode_document(self, messages: Sequence[Message]) -> tuple[int, ...]:
        return self.text.encode_text(document(messages))

    def read_ahead(
        self, messages: Sequence[Message], prefix: str, conversation: str | None, thinking: Thinking
    ) -> GenerationRequest:
        """The request that reads what comes before the next question; raises InvalidRequest.

        ``prefix`` is the start of that question.
        """
        if self.text.chats:
            prompt = self.text.encode_ahead(messages, prefix, variables_for(thinking))
        else:
            prompt = self._encode_document(messages)
        return GenerationRequest(prompt, 1, session=conversation, ahead=True)

    def start(
        self, prepared: PreparedRequest, sink: AnswerSink, news: Observable | None = None
    ) -> RunningReply:
        """Let the engine answer."""
        generation, reader = self.worker.generate(prepared.request), self._reader(prepared)
        answer = EngineAnswer(generation, prepared.request, reader)
        return RunningReply(answer, prepared.continued, sink, news)

    def _reader(self, prepared: PreparedRequest) -> AnswerReader:
        """What reads the answer: the rest of a text that a client started is text and no reasoning."""
        chat, text = prepared.chat, self.text
        prefix = prepared.continued.text or chat.prefix
        stream = (
            text.text_detokenizer(chat.text + prefix)
            if chat.continues
            else text.detokenizer(prefix, prepared.opened)
        )
        use = chat.tool_use
        calls = None if use is None else self._calls(use, chat.prefix)
        typed = use is not None or not (chat.continues or chat.prefix)
        stop = chat.stop if chat.continues else (*chat.stop, *text.stop_texts)
        parser = OutputParser(StopFilter(stop), calls, opened=prepared.opened, typed=typed)
        return AnswerReader(stream, parser, prepared.continued)

    def _calls(self, use: ToolUse, prefix: str) -> ToolCallParser:
        once = use.must_call or use.otherwise is not None  # then an answer has nothing else to say
        return ToolCallParser(self.text.call_form, use.tools, prefix, once=once)

    def _prompts(self, chat: ChatRequest, prefix: str) -> Callable[[str], Prompt]:
        """Makes prompts for answers that start with a given text; ``prefix`` is the usual start.

        An answer with a grammar does not reason.
        """
        text = self.text
        if chat.tokens:
            return lambda _: Prompt(chat.tokens, "")
        if chat.text:
            return lambda start: Prompt(text.encode_text(chat.text + start), "")
        use = chat.tool_use
        must_call = use is not None and use.must_call and not text.calls_in_channels
        held = chat.grammar is not None or (use is not None and use.otherwise is not None)
        thinking = "off" if held or must_call else chat.thinking
        if thinking == "off" and split_reasoning(prefix).reasoning is not None:
            thinking = AS_TAUGHT  # the answer has already reasoned
        variables = {**variables_for(thinking), **chat.variables}
        rendered = text.render(chat.messages, use.tools if use else (), variables)
        return lambda start: rendered.prompt(start, thinks=thinking != "off")

    def _grammar(self, chat: ChatRequest) -> Grammar | None:
        """The grammar of the answer: its format, the form of tool calls, or one of the two.

        Raises InvalidRequest.
        """
        use = chat.tool_use
        if use is None or chat.grammar is not None:
            return chat.grammar
        if use.otherwise is not None:
            return self._call_or_format(use, use.otherwise)
        in_channel = (
            bool(chat.prefix) and self.text.calls_in_channels
        )  # its header has been written
        return None if in_channel else self.text.held(use)

    def _call_or_format(self, use: ToolUse, form: Grammar) -> Grammar:
        calls = self.text.held(replace(use, must_call=True, otherwise=None))
        if calls is None or self.text.calls_in_channels:
            raise InvalidRequest(
                "this model opens a channel for a call before it writes one, so an answer in a "
                "format calls no tools; leave out one of the two, or set tool_choice to none"
            )
        return either(calls, form)

    def _begun(
        self, chat: ChatRequest, ids: Sequence[int], prompts: Callable[[str], Prompt]
    ) -> int:
        """How many tokens at the end of the prompt are the start of the answer that a grammar holds.

        A call that must come may come after another start. Raises InvalidRequest.
        """
        start, opening = chat.prefix.strip(), self.text.call_form.opening
        calls = chat.tool_use is not None and chat.tool_use.must_call
        if calls and not (start.startswith(opening) or opening.startswith(start)):
            return 0
        begun = ids[common_prefix(ids, prompts("").ids) :]
        written = self.text.spelled(begun).strip()
        if written != start and (chat.tool_use is None or not written.endswith(start)):
            raise InvalidRequest(
                "this model's tokens do not divide where the given start of the answer begins; "
                "leave out the start or the format"
            )
        return len(begun)

    def _spelled(self, chat: ChatRequest) -> ChatRequest:
        """A prompt of token ids with its text; raises InvalidRequest."""
        if any(not 0 <= token < self.facts.vocab for token in chat.tokens):
            raise InvalidRequest(f"token ids must lie in 0..{self.facts.vocab - 1}")
        return replace(chat, text=self.text.spelled(chat.tokens)) if chat.tokens else chat

    def _check_drafter_runs(self, drafter: str) -> None:
        for name, why in self.facts.refused:
            if name == drafter:
                raise InvalidRequest(f"{drafter} cannot run with {self.facts.name}: {why}")


def first_seen(messages: Sequence[Message], sizes: Sequence[int], context: int) -> int:
    """The index of the question that the visible part starts with; 0 where all is visible.

    ``sizes`` are the tokens of the messages. A system prompt is always visible. The oldest messages
    are dropped in steps of half the room: dropping one exchange at a time would change the start of
    every prompt, so that all of it is read again each time. The sizes alone decide where a step is,
    so what was dropped once stays dropped.
    """
    system = 1 if messages and messages[0].role == "system" else 0
    room = int((1 - ANSWER) * context) - sum(size + AROUND for size in sizes[:system])
    before = [0, *accumulate(size + AROUND for size in sizes[system:])]
    if before[-1] <= room or room <= 1:
        return 0
    step = room / 2
    least = ceil((before[-1] - room) / step) * step
    questions = [n for n in range(system, len(messages)) if messages[n].role == "user"]
    later = (n for n in questions if before[n - system] >= least)
    return next(later, questions[-1] if questions else 0)
