"""A runner on the app's own model: caches cold, and no other request in the engine.

An answer that a person asks for meanwhile goes first: the run is cancelled, waits for its end, and
begins again.
"""

import time
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from itertools import count

from app.bench.measure import Pass, Prompt, RunStep, Sample, Turn
from app.bench.runners import Answer, fresh_name
from app.chat.assistant import Assistant
from app.chat.loaded_model import LoadedModel, PreparedRequest
from app.errors import RequestFailed
from app.request import ChatRequest, Message
from app.text.reasoning.tags import joined
from engine.request import Done, Event, GenerationRequest, Tokens


@dataclass(slots=True)
class IsolatedRunner:
    """The runs of one comparison, one after another; answers have ``max_tokens`` at most."""

    assistant: Assistant
    model: LoadedModel
    max_tokens: int
    changed: Callable[[], None]  # called when a run waits for a person's answer, and continues
    _name: str = field(default_factory=fresh_name)
    _interrupted: Counter[str] = field(default_factory=Counter)  # by lane and repeat

    def prepare(self, messages: tuple[Message, ...]) -> PreparedRequest:
        """The prompt as the model takes it; raises InvalidRequest, ContextOverflow."""
        turn = ChatRequest(messages, max_tokens=self.max_tokens)
        return self.model.prepare(turn)

    async def run(self, turn: Turn) -> AsyncGenerator[RunStep, None]:
        """See ``Runner``; None whenever the run begins, perhaps again. Raises WorkerCrashed too."""
        [prompt] = turn.prompts
        prepared = self.prepare(prompt.messages)
        thought = prepared.opened
        asked = replace(turn.lane.asks(prepared.request), cold=True, margins=turn.margins)
        key = f"{turn.lane.name} {turn.repeat}"
        while True:
            await self._wait_for_answers()
            state = f"{self._name} {key} {self._interrupted[key]}"
            request = replace(asked, drafter_state=state)
            begun = self.assistant.answers_started
            await self._build_drafters(request)
            yield None
            generation = self.model.worker.generate(request)
            async with aclosing(generation):
                async for step in self._passes(generation, turn, prompt, thought):
                    if self.assistant.answers_started != begun:
                        generation.cancel()  # and read to its end: the engine is free then
                    if not isinstance(step, Sample):
                        yield step
                    elif self.assistant.answers_started == begun:
                        yield step
                        return
            self._interrupted[key] += 1  # the drafters know a part of this answer

    async def _passes(
        self, events: AsyncIterator[Event], turn: Turn, prompt: Prompt, thought: str
    ) -> AsyncGenerator[Pass | Sample, None]:
        """Every pass of one request with its text, and its sample; raises RequestFailed.

        ``thought`` is what the prompt opens of the answer already.
        """
        answer, before = Answer(turn.lane.name), thought
        detokenizer = self.model.text.detokenizer(opened=thought)
        passes: list[Pass] = []
        started = time.perf_counter()
        async for event in events:
            seconds = time.perf_counter() - started
            answer.take(event, seconds)
            if isinstance(event, Tokens):
                text, before = before + joined(detokenizer.feed(event.ids)), ""
                passes.append(Pass(seconds, len(event.ids), text, event.drafted, event.accepted))
                yield passes[-1]
            elif isinstance(event, Done):
                sample = answer.sample(turn, prompt, event.stats.decode_seconds)
                yield replace(sample, passes=tuple(passes))
                return
        raise RequestFailed(f"in the lane {turn.lane.name}: the answer has no end")

    async def _wait_for_answers(self) -> None:
        if self.assistant.answering:
            self.changed()
            await self.assistant.idle()
            self.changed()

    async def _build_drafters(self, request: GenerationRequest) -> None:
        """Before the clock starts, over another text: after a cancel a part of this one is known."""
        other = next(token for token in count() if token != request.prompt[0])
        async for _ in self.model.worker.generate(replace(request, prompt=(other,), max_tokens=1)):
            pass
