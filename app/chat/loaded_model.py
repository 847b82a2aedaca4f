"""One loaded model: its files, its tokenizer, its process, and turns as it takes them."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from app.chat.reply import AnswerSink, RunningReply
from app.chat.truncate import AROUND, first_seen
from app.history.records import Conditions
from app.history.task_class import task_class, temperature_class
from app.models.catalog import CatalogEntry, find_entry, load_catalog, resolve
from app.placement.machine import machine_name
from app.placement.plans import INT8, place_with_dtype
from app.reasoning_effort import AS_TAUGHT, Thinking, variables_for
from app.request import ChatRequest, Message, PartialAnswer, check_request
from app.settings import Settings
from app.text.chat_text import ChatText, Prompt
from app.text.detokenizer import StopFilter, TextStream
from app.text.output_parser import split_reasoning
from app.worker.worker import EngineWorker
from engine.errors import ContextOverflow, InvalidRequest
from engine.grammar.rules import Grammar
from engine.hardware.plan import Plan
from engine.request import GenerationRequest, ModelFacts, ModelSpec, Stats
from engine.speculation.common_prefix import common_prefix


@dataclass(frozen=True, slots=True)
class PreparedRequest:
    """A turn that the engine can take; ``begun`` is the answer that it continues."""

    model: "LoadedModel"
    turn: ChatRequest
    request: GenerationRequest
    begun: PartialAnswer


@dataclass(frozen=True, slots=True)
class ContextUse:
    """What the model is told of a conversation: tokens, and the oldest messages that it is not told."""

    used: int
    unseen: int


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model that answers; ``open`` makes a real one."""

    entry: CatalogEntry
    spec: ModelSpec
    facts: ModelFacts
    worker: EngineWorker
    text: ChatText
    plan: Plan | None = None  # where it lies, and why; None for models that fit anywhere

    @classmethod
    async def open(
        cls, settings: Settings, model: str, draft: str | None = None, dtype: str | None = None
    ) -> "LoadedModel":
        """Load ``model`` (a catalogue name or a folder), drafting with the model ``draft`` if given.

        ``dtype`` names the number format of its weights; None: the catalogue's, or the plan's.
        Raises UnknownModel, ModelUnusable, WorkerCrashed.
        """
        entry = find_entry(load_catalog(settings), model)
        spec = await asyncio.to_thread(resolve, settings, model, draft)
        found = await asyncio.to_thread(place_with_dtype, settings, spec, dtype or entry.dtype)
        return await cls.load(entry, found.spec, found.plan, settings.keep_alive)

    @classmethod
    async def load(
        cls,
        entry: CatalogEntry,
        spec: ModelSpec,
        plan: Plan | None = None,
        keep_alive: float | None = None,
    ) -> "LoadedModel":
        """Load what is resolved already; raises ModelUnusable, WorkerCrashed."""
        worker = EngineWorker(spec, keep_alive=keep_alive)
        reading = asyncio.to_thread(ChatText.load, Path(spec.folder))
        try:
            facts, text = await asyncio.gather(worker.start(), reading)
        except BaseException:
            await worker.close()
            raise
        return cls(entry, spec, facts, worker, text, plan)

    def conditions(self, turn: ChatRequest) -> Conditions:
        """What the measurements of ``turn`` are filed under."""
        draft = self.spec.draft_folder
        numbers = INT8 if self.spec.weights == INT8 else self.spec.dtype
        return Conditions(
            model=self.entry.name,
            draft=Path(draft).name if draft else "",
            machine=machine_name(self.spec.device, numbers),
            temperature=temperature_class(turn.sampling),
            task=task_class(turn.asked),
        )

    def prepare(self, turn: ChatRequest, begun: PartialAnswer) -> PreparedRequest:
        """The turn as the engine takes it; everything that can be refused here is.

        Raises InvalidRequest, UnknownDrafter, ContextOverflow.
        """
        check_request(turn)
        self._check_runs(turn.drafter)
        prompt, thought = self._prompt(turn, begun.text or turn.begun)
        left = self.facts.context - len(prompt)
        if left < 1:
            raise ContextOverflow(len(prompt) + 1, self.facts.context)
        request = GenerationRequest(
            prompt=prompt,
            max_tokens=left if turn.max_tokens is None else turn.max_tokens,
            sampling=turn.sampling,
            stop_tokens=self.text.stop_tokens,
            session=turn.session,
            task=task_class(turn.asked),
            drafter=turn.drafter,
            prediction=self._predicted(turn, begun, prompt),
            logprobs=turn.logprobs,
            grammar=self._grammar(turn),
        )
        return PreparedRequest(self, turn, request, replace(begun, thought=thought))

    def prompt_tokens(self, turn: ChatRequest) -> int:
        """How many tokens ask for it, however many fit the context; raises InvalidRequest."""
        check_request(turn)
        return len(self._prompt(turn, turn.begun).ids)

    def seen(self, messages: Sequence[Message]) -> list[Message]:
        """Those that the model is told, where all do not fit the context: ``first_seen``."""
        if sum(len(one.content.encode()) + AROUND for one in messages) <= self.facts.context // 2:
            return [*messages]  # no text has more tokens than bytes
        sizes = [self.text.count(one.content) for one in messages]
        first = first_seen(messages, sizes, self.facts.context)
        told = messages[:1] if first and messages[0].role == "system" else []
        return [*told, *messages[first:]]

    def standing(self, messages: Sequence[Message]) -> ContextUse:
        """How much of the context these take, and how many are left out of it."""
        seen = self.seen(messages)
        used = len(self.text.encode_chat(seen)) if seen else 0
        return ContextUse(used, len(messages) - len(seen))

    def ahead(
        self, messages: Sequence[Message], begun: str, session: str | None, thinking: Thinking
    ) -> GenerationRequest:
        """What reads all that the next question stands behind; raises InvalidRequest.

        ``begun`` is what the question begins with.
        """
        prompt = self.text.encode_ahead(messages, begun, variables_for(thinking))
        return GenerationRequest(prompt, 1, session=session, ahead=True)

    def start(self, prepared: PreparedRequest, keeper: AnswerSink) -> RunningReply:
        """Let the engine answer."""
        return RunningReply(
            self.worker.generate(prepared.request),
            _detokenizer(self.text, prepared),
            StopFilter(prepared.turn.stop),
            _unfinished(prepared.request),
            keeper,
            prepared.begun,
        )

    def _prompt(self, turn: ChatRequest, begun: str) -> Prompt:
        """The prompt, and what is written of its answer already; what is held to a form has no thoughts."""
        if turn.text:
            return Prompt(self.text.encode_text(turn.text + begun), "")
        tools = turn.use.tools if turn.use else ()
        called = turn.use is not None and turn.use.must_call and not self.text.calls_in_channels
        held = turn.grammar is not None or called
        thinking = "off" if held else turn.thinking
        if (
            thinking == "off" and split_reasoning(begun).thought is not None
        ):  # it has thought already
            thinking = AS_TAUGHT
        told = {**variables_for(thinking), **turn.variables}
        return self.text.prompt(
            turn.messages, begun, tools, thinks=thinking != "off", variables=told
        )

    def _grammar(self, turn: ChatRequest) -> Grammar | None:
        """What the answer is held to: its format, or the form of calls."""
        return turn.grammar if turn.use is None else self.text.answers.held(turn.use)

    def _predicted(
        self, turn: ChatRequest, begun: PartialAnswer, prompt: tuple[int, ...]
    ) -> tuple[int, ...]:
        """The tokens of a prediction as they would stand behind this prompt."""
        if not turn.prediction:
            return ()
        whole = self._prompt(turn, (begun.text or turn.begun) + turn.prediction).ids
        return whole[common_prefix(prompt, whole) :]

    def _check_runs(self, drafter: str) -> None:
        for name, why in self.facts.refused:
            if name == drafter:
                raise InvalidRequest(f"{drafter} cannot run with {self.facts.name}: {why}")


def _detokenizer(text: ChatText, prepared: PreparedRequest) -> TextStream:
    """Of the tokens that go on with what is there already."""
    begun = prepared.begun.text or prepared.turn.begun
    if prepared.turn.text:
        return text.detokenizer_behind(prepared.turn.text + begun)
    return text.detokenizer(begun, prepared.begun.thought)


def _unfinished(request: GenerationRequest) -> Stats:
    """What is known of an answer that the engine could not describe; counts come later."""
    return Stats(
        drafter=request.drafter,
        why="the engine stopped before it could say",
        prompt_tokens=len(request.prompt),
        cached_tokens=0,
        emitted=0,
        passes=0,
        drafted=0,
        accepted=0,
        depths=(),
        prompt_seconds=0.0,
        decode_seconds=0.0,
    )
