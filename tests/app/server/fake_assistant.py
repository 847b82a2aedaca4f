"""A small real assistant without a model: it repeats what it is told, two words per pass."""

import asyncio
import threading
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from dataclasses import replace
from math import inf
from pathlib import Path

from app.chat.prediction import compared
from app.history.store import History
from app.models.catalog import CatalogEntry
from app.request import ChatRequest, Completion, Delta, Message, Piece, ReplyOptions
from engine.errors import ContextOverflow, InvalidRequest
from engine.request import DepthCount, FinishReason, Logprob, ModelFacts, Stats

CONTEXT = 1000
CRASH, BUG, FOREVER = "crash now", "hit a bug", "count forever"

Answer = AsyncGenerator[Delta]


def logprob(token: int, many: int) -> Logprob:
    """A token that is likely, and others that are impossible."""
    return Logprob(token, -0.5, tuple((token + n, -inf if n else -0.5) for n in range(many)))


class FakeAssistant:
    """``CRASH``, ``BUG`` and ``FOREVER`` as the last message make it behave accordingly."""

    def __init__(self, history: History | None = None) -> None:
        self.facts = ModelFacts(
            "pocket",
            CONTEXT,
            4096,
            8,
            10_000_000,
            ("none", "lookup"),
            (("chain", "it has no draft"),),
        )
        self.entry = CatalogEntry("pocket", "Repeats.", Path("/nowhere"))
        self.history = history
        self.forget()

    def forget(self) -> None:
        self.pause = 0.005  # seconds of a pass
        self.turns: list[ChatRequest] = []
        self.ended = threading.Event()  # set when an answer ends, however it does
        self.going = 0  # answers that run
        self._conversations: dict[str, list[Message]] = {}
        self._stopped: set[str] = set()

    def reply(self, turn: ChatRequest) -> AsyncIterator[Delta]:
        self.turns.append(turn)
        return self._answer(turn, turn.session or "")

    def send(self, conversation: str, text: str, options: ReplyOptions) -> AsyncIterator[Delta]:
        self._conversations.setdefault(conversation, []).append(Message("user", text))
        return self.regenerate(conversation, options)

    def regenerate(self, conversation: str, options: ReplyOptions) -> AsyncIterator[Delta]:
        messages = self._conversations[conversation]
        while messages[-1].role != "user":
            messages.pop()
        return self._stored(
            conversation, ChatRequest(tuple(messages), options.sampling, options.max_tokens)
        )

    def stop(self, conversation: str) -> None:
        self._stopped.add(conversation)

    def token_bytes(self, token: int) -> bytes:
        """Every second token is the first half of a character."""
        return "é".encode()[:1] if token % 2 else b"word"

    def models(self) -> list[CatalogEntry]:
        return [self.entry]

    async def close(self) -> None:
        self._stopped.update(self._conversations)

    async def _stored(self, conversation: str, turn: ChatRequest) -> Answer:
        async with aclosing(self._answer(turn, conversation)) as answer:
            async for delta in answer:
                if isinstance(delta, Completion):
                    reply = Message("assistant", delta.text)
                    self._conversations[conversation].append(reply)
                yield delta

    async def _answer(self, turn: ChatRequest, conversation: str) -> Answer:
        self._stopped.discard(conversation)
        said = turn.asked[-1].content
        prompt = sum(len(message.content.split()) for message in turn.asked)
        if prompt >= CONTEXT:
            raise ContextOverflow(prompt, CONTEXT)
        if turn.drafter == "chain":
            raise InvalidRequest("the drafter chain cannot run: it has no draft")
        pieces: list[str] = []
        told: list[Logprob] = []
        reason = FinishReason.STOP
        self.going += 1
        try:
            async for piece in self._words(said, turn):
                if conversation in self._stopped:
                    reason = FinishReason.CANCELLED
                    break
                pieces.append(piece.text)
                told += piece.logprobs
                yield piece
            if len(pieces) * 2 == turn.max_tokens:
                reason = FinishReason.LENGTH
            report = self._report("".join(pieces), prompt, reason, said)
            foretold = range(len(turn.prediction.split()))
            came_true = compared(foretold, report.token_ids) if foretold else None
            yield replace(report, foretold=came_true, logprobs=tuple(told))
        finally:
            self.going -= 1
            self.ended.set()

    async def _words(self, said: str, turn: ChatRequest) -> AsyncGenerator[Piece]:
        words = said.split()
        count = 0
        while count < (turn.max_tokens or 10**9) and (words or said == FOREVER):
            pair, words = (words[:2], words[2:]) if said != FOREVER else (["on", "on"], words)
            ids = (count, count + 1)
            told = () if turn.logprobs is None else tuple(logprob(i, turn.logprobs) for i in ids)
            yield Piece("".join(f"{word} " for word in pair), ids, 2, 1, told)
            count += 2
            await asyncio.sleep(self.pause)
            if said == BUG:
                raise RuntimeError("a bug, and its secrets")

    def _report(self, text: str, prompt: int, reason: FinishReason, said: str) -> Completion:
        emitted = len(text.split())
        passes = (emitted + 1) // 2
        stats = Stats(
            drafter="lookup",
            why="the prompt repeats itself",
            prompt_tokens=prompt,
            cached_tokens=1,
            emitted=emitted,
            passes=passes,
            drafted=2 * passes,
            accepted=passes,
            depths=(DepthCount(passes, passes), DepthCount(passes, 0)),
            prompt_seconds=0.01,
            decode_seconds=0.02,
        )
        ids = tuple(range(emitted))
        if said == CRASH:
            broken = "the engine's process ended by itself; the next answer runs on a new one"
            return Completion(text, ids, FinishReason.ERROR, stats, broken)
        return Completion(text, ids, reason, stats)
