"""A small assistant without a model: it repeats what it reads, two words per pass."""

import asyncio
import threading
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass
from math import inf
from pathlib import Path
from types import SimpleNamespace

from app.chat.engine_answer import compared
from app.chat.reply import Arrived
from app.history.store import History
from app.models.catalog import CatalogEntry
from app.request import AnswerEvent, ChatRequest, Completion
from app.text.detokenizer import StopFilter
from app.text.output_parser import OutputParser
from app.text.reasoning.tags import TagSplitter
from engine.errors import ContextOverflow, InvalidRequest
from engine.request import DepthCount, FinishReason, Logprob, ModelFacts, Stats

CONTEXT = 1000
CRASH, BUG, FOREVER = "crash now", "hit a bug", "count forever"
DEPTHS = (DepthCount(1, 1), DepthCount(1, 0))


def logprob(token: int, count: int) -> Logprob:
    """A token that is likely, and others that are impossible."""
    return Logprob(token, -0.5, tuple((token + n, -inf if n else -0.5) for n in range(count)))


def token_bytes(token: int) -> bytes:
    """Every second token is the first half of a character."""
    return "é".encode()[:1] if token % 2 else b"word"


async def nobody() -> dict[str, str]:
    """There are no other engines."""
    return {}


@dataclass(frozen=True)
class Prepared:
    """What of a prepared request the endpoint reads."""

    chat: ChatRequest
    prompt_tokens: int
    first_tokens: tuple[int, ...] = ()
    freed: tuple[str, ...] = ()


class FakeAssistant:
    """``CRASH``, ``BUG`` and ``FOREVER`` as the last message make it behave accordingly."""

    def __init__(self, history: History | None = None) -> None:
        drafters, refused = ("none", "lookup"), (("chain", "it has no draft"),)
        self.facts = ModelFacts("pocket", CONTEXT, 4096, 8, 10_000_000, drafters, refused)
        self.entry = CatalogEntry("pocket", "Repeats.", Path("/nowhere"))
        self.loaded = SimpleNamespace(
            text=SimpleNamespace(token_bytes=token_bytes), entry=self.entry, facts=self.facts
        )
        self.current = SimpleNamespace(
            served=self.models, named=lambda _: self.loaded, ask_engines=nobody
        )
        self.history = history
        self.forget()

    def forget(self) -> None:
        self.pause = 0.005  # seconds of a pass
        self.requests: list[ChatRequest] = []
        self.ended = threading.Event()  # set when an answer ends, however it does
        self.running = 0  # answers
        self.steps = 0  # all passes

    async def close(self) -> None:
        """It holds nothing."""

    def models(self) -> list[CatalogEntry]:
        return [self.entry]

    async def prepare(self, request: ChatRequest) -> Prepared:
        prompt = sum(len(one.content.split()) for one in request.conversation_or_text)
        if prompt >= CONTEXT:
            raise ContextOverflow(prompt, CONTEXT)
        if request.drafter == "chain":
            raise InvalidRequest("the drafter chain cannot run: it has no draft")
        return Prepared(request, prompt)

    async def answers(
        self, requests: Sequence[Prepared], count: int = 1, quiet_seconds: float | None = None
    ) -> AsyncGenerator[Arrived | None]:
        """The answers in step with each other, as one batch of the engine."""
        wanted = [one.chat.choice(at) for one in requests for at in range(count)]
        self.requests += wanted
        async with AsyncExitStack() as stack:
            left = {}
            for at, request in enumerate(wanted):
                left[at] = await stack.enter_async_context(aclosing(self._answer(request)))
            while left:
                await asyncio.sleep(self.pause)
                self.steps += 1
                for at, answer in list(left.items()):
                    if (event := await anext(answer, None)) is None:
                        del left[at]
                    else:
                        yield at, event

    async def _answer(self, request: ChatRequest) -> AsyncGenerator[AnswerEvent]:
        text = request.conversation_or_text[-1].content
        prompt = sum(len(one.content.split()) for one in request.conversation_or_text)
        self.running += 1
        tags, parser = TagSplitter(), OutputParser(StopFilter(()))
        written, passes, logprobs = "", 0, ()
        try:
            for pair in _pairs(text, request.max_tokens):
                ids = (2 * passes, 2 * passes + 1)
                found = () if request.logprobs is None else tuple(
                    logprob(token, request.logprobs) for token in ids
                )  # fmt: skip
                passes, written, logprobs = passes + 1, written + pair, (*logprobs, *found)
                parser.feed(tags.feed(pair))
                yield parser.delta(ids, 2, 1, found)
                if text == BUG:
                    raise RuntimeError("a bug, and its secrets")
            parser.end(tags.end())
            yield parser.delta()
            ids = tuple(range(len(written.split())))
            predicted = range(len(request.prediction.split()))
            length = 2 * passes == request.max_tokens
            crashed = "the engine's process ended by itself; the next answer runs on a new one"
            yield Completion(
                text=written,
                token_ids=ids,
                finish_reason=(
                    FinishReason.ERROR if text == CRASH
                    else FinishReason.LENGTH if length else FinishReason.STOP
                ),
                stats=_stats(prompt, len(ids)),
                error=crashed if text == CRASH else None,
                prediction=compared(predicted, ids) if predicted else None,
                logprobs=logprobs,
            )  # fmt: skip
        finally:
            self.running -= 1
            self.ended.set()


async def open_fake() -> FakeAssistant:
    return FakeAssistant()


def _pairs(text: str, most: int | None) -> Iterator[str]:
    """Two words at a time, at most ``most`` words."""
    words, count = text.split(), 0
    while count < (most or 10**9) and (count < len(words) or text == FOREVER):
        pair = ["on", "on"] if text == FOREVER else words[count : count + 2]
        yield "".join(f"{word} " for word in pair)
        count += 2


def _stats(prompt: int, emitted: int) -> Stats:
    passes = (emitted + 1) // 2
    return Stats(
        drafter="lookup",
        why="the prompt repeats itself",
        prompt_tokens=prompt,
        cached_tokens=1,
        emitted=emitted,
        passes=passes,
        drafted=2 * passes,
        accepted=passes,
        depths=DEPTHS,
        prompt_seconds=0.01,
        decode_seconds=0.02,
    )
