"""The runner over a program: it times what arrives here, and repeats what others disturbed."""

import os
import time
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field

from app.bench.measure import Pass, RunStep, Sample, Turn
from app.bench.peers.program import Chunk, Program, Question
from app.bench.peers.quiet import Watch
from engine.request import Stats

MOST_TRIES = 5


@dataclass
class PeerRunner:
    """One mode of a program; the others are paused meanwhile."""

    program: Program
    mode: str
    max_tokens: int
    stop_tokens: frozenset[int]
    repeated: int = 0  # runs that were disturbed and done again
    disturbed: set[int] = field(default_factory=set)  # prompts of which every try was disturbed

    async def run(self, turn: Turn) -> AsyncGenerator[RunStep, None]:
        """See ``Runner``; of an answer that was disturbed in every try the least disturbed one."""
        [prompt] = turn.prompts
        tries: list[tuple[float, Sample]] = []
        while True:
            yield None
            watch = Watch((os.getpid(), self.program.pid))
            # backwards in the warm-up: what a program learns there must not answer the first prompt
            ids = prompt.ids if turn.repeat else prompt.ids[::-1]
            question = Question(ids, self.max_tokens, self.stop_tokens, len(tries))
            sample = await self._sample(turn, question)
            taken = watch.taken()
            tries.append((taken.others, sample))
            if not taken.disturbed or len(tries) == MOST_TRIES:
                break
            self.repeated += 1
        if taken.disturbed:
            self.disturbed.add(prompt.number)
        yield min(tries, key=lambda one: one[0])[1]

    async def _sample(self, turn: Turn, question: Question) -> Sample:
        """One answer; its seconds begin with the first token."""
        chunks: list[Chunk] = []
        passes: list[Pass] = []
        with self.program.running():
            started = time.perf_counter()
            async for chunk in self.program.answer(self.mode, question):
                chunks.append(chunk)
                seconds = time.perf_counter() - started
                passes.append(
                    Pass(seconds, len(chunk.ids), drafted=chunk.drafted, accepted=chunk.accepted)
                )
        ids = tuple(token for chunk in chunks for token in chunk.ids)
        first, seconds = (passes[0].seconds, passes[-1].seconds) if passes else (None, 0.0)
        later = [*ids[len(chunks[0].ids) :], *(1 for chunk in chunks[1:] if chunk.stopped)]
        decoding = seconds - (first or 0.0)
        return Sample(
            lane=turn.lane.name,
            prompt=turn.prompts[0].number,
            group=turn.group,
            repeat=turn.repeat,
            ids=ids,
            stats=self._stats(question, chunks, first or 0.0, decoding),
            seconds=decoding,
            timed=len(later),
            first_seconds=first,
            passes=tuple(passes),
        )

    def _stats(
        self, question: Question, chunks: list[Chunk], first: float, decoding: float
    ) -> Stats:
        return Stats(
            drafter=self.mode,
            why="",
            prompt_tokens=len(question.ids),
            cached_tokens=0,
            emitted=sum(len(chunk.ids) for chunk in chunks),
            passes=len(chunks),
            drafted=sum(chunk.drafted for chunk in chunks),
            accepted=sum(chunk.accepted for chunk in chunks),
            depths=(),
            prompt_seconds=first,
            decode_seconds=decoding,
        )
