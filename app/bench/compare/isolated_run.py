"""One measured answer: caches cold, drafters of its own, and nobody else in the engine.

What an earlier run left behind would make a later one faster: prompts stay warm in the slots of both
models, and drafters learn, some of them whole answers. So nothing is warm when a run begins, and every
key has drafters that no other key has. An answer that somebody asks for meanwhile goes first: the run
is broken off, waits for its end, and begins again.
"""

import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import count

from app.chat.assistant import Assistant
from app.chat.loaded_model import LoadedModel
from app.errors import RequestFailed
from app.request import ChatRequest, Message, PartialAnswer
from engine.request import FinishReason, GenerationRequest, Stats, Tokens


@dataclass(frozen=True, slots=True)
class Pass:
    """What one pass of the model added to an answer."""

    seconds: float  # from the request to its arrival
    tokens: int
    text: str
    drafted: int
    accepted: int


@dataclass(frozen=True, slots=True)
class Run:
    """One answer from its request to its end."""

    drafter: str
    ids: tuple[int, ...]
    passes: tuple[Pass, ...]
    stats: Stats
    margins: tuple[float, ...] = ()  # only when asked for

    @property
    def rate(self) -> float:
        """Tokens per second of decoding, by the engine's clock; 0 when nothing was timed."""
        seconds = self.stats.decode_seconds
        return len(self.ids) / seconds if seconds > 0 else 0.0


@dataclass(frozen=True, slots=True)
class IsolatedRequest:
    """A prompt that lanes answer, greedily; ``thought`` is what it opens of the answer already."""

    request: GenerationRequest
    thought: str = ""


Follow = Callable[[Pass | None], None]


def ignore(_: Pass | None) -> None:
    """Nobody watches this run."""


@dataclass(slots=True)
class IsolatedRunner:
    """Where the runs of one comparison take place, one after another."""

    assistant: Assistant
    model: LoadedModel
    changed: Callable[[], None]  # told when a run waits for somebody's answer, and when it goes on
    _states: dict[str, str] = field(default_factory=dict)  # by key

    def asked(self, messages: tuple[Message, ...], max_tokens: int) -> IsolatedRequest:
        """The prompt as the model takes it; raises InvalidRequest, ContextOverflow."""
        prepared = self.model.prepare(ChatRequest(messages, max_tokens=max_tokens), PartialAnswer())
        return IsolatedRequest(prepared.request, prepared.begun.thought)

    async def run(
        self, asked: IsolatedRequest, drafter: str, key: str, follow: Follow = ignore
    ) -> Run:
        """Answer once, undisturbed; runs of one ``key`` share drafters, which remember.

        ``follow`` hears None when the run begins, perhaps again, and then of every pass.
        Raises WorkerCrashed, RequestFailed.
        """
        while True:
            await self._wait_for_answers()
            state = self._states.setdefault(key, secrets.token_hex())
            request = replace(asked.request, drafter=drafter, drafter_state=state, cold=True)
            begun = self.assistant.begun
            await self._prepare(request)
            follow(None)
            run = await self._attempt(replace(asked, request=request), begun, follow)
            if run is not None:
                return run
            del self._states[key]  # its drafters know a part of this answer

    async def _wait_for_answers(self) -> None:
        if self.assistant.answering:
            self.changed()
            await self.assistant.idle()
            self.changed()

    async def _attempt(self, asked: IsolatedRequest, begun: int, follow: Follow) -> Run | None:
        """The answer; None when somebody else's began meanwhile."""
        drafter, before = asked.request.drafter, asked.thought
        detokenizer = self.model.text.detokenizer(thought=before)
        ids: list[int] = []
        passes: list[Pass] = []
        margins: list[float] = []
        generation = self.model.worker.generate(asked.request)
        started = time.perf_counter()
        try:
            async for event in generation:
                if self.assistant.begun != begun:
                    generation.cancel()  # and read on to its end: the engine is free then
                if isinstance(event, Tokens):
                    seconds = time.perf_counter() - started
                    text, before = before + detokenizer.feed(event.ids), ""
                    ids += event.ids
                    margins += event.margins
                    size = len(event.ids)
                    passes.append(Pass(seconds, size, text, event.drafted, event.accepted))
                    follow(passes[-1])
                elif event.reason is FinishReason.ERROR:
                    raise RequestFailed(f"with the drafter {drafter}: {event.error}")
                elif self.assistant.begun != begun:
                    return None
                else:
                    ran = (tuple(ids), tuple(passes), event.stats, tuple(margins))
                    return Run(drafter, *ran)
        finally:
            await generation.aclose()
        raise AssertionError("a generation ends with Done")

    async def _prepare(self, request: GenerationRequest) -> None:
        """Build the lane's own drafters before the clock starts, over another text.

        Of the real one a cancel might leave a part known.
        """
        other = next(token for token in count() if token != request.prompt[0])
        await self._pass(replace(request, prompt=(other,), max_tokens=1))

    async def _pass(self, request: GenerationRequest) -> None:
        async for _ in self.model.worker.generate(request):
            pass
