"""A runner on a model of another engine: its answers as they arrive here, by this machine's clock."""

import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass

from app.bench.measure import Pass, RunStep, Sample, Turn
from app.chat.remote.model import RemoteModel
from app.chat.reply import follow
from app.chat.stored_answer import NotStored
from app.errors import RequestFailed
from app.request import ChatRequest, Completion


@dataclass(frozen=True, slots=True)
class RemoteRunner:
    """The runs of one comparison, one after another; greedy, with ``max_tokens`` at most."""

    model: RemoteModel
    max_tokens: int

    async def run(self, turn: Turn) -> AsyncGenerator[RunStep, None]:
        """See ``Runner``; raises RemoteFailed, ContextOverflow too."""
        [prompt] = turn.prompts
        asked = self.model.prepare(ChatRequest(prompt.messages, max_tokens=self.max_tokens))
        yield None
        started, passes, ids = time.perf_counter(), list[Pass](), list[int]()
        async with aclosing(follow([asked.start(NotStored())])) as arriving:
            async for arrived in arriving:
                if arrived is None:
                    continue
                event, seconds = arrived[1], time.perf_counter() - started
                if isinstance(event, Completion):
                    yield _sample(turn, event, passes, ids)
                elif event.tagged:
                    ids.append(self.model.words.number(event.tagged.encode()))
                    passes.append(Pass(seconds, 1, event.tagged))
                    yield passes[-1]


def _sample(turn: Turn, end: Completion, passes: list[Pass], ids: list[int]) -> Sample:
    if end.error is not None:
        raise RequestFailed(f"in the lane {turn.lane.name}: {end.error}")
    return Sample(
        lane=turn.lane.name,
        prompt=turn.prompts[0].number,
        group=turn.group,
        repeat=turn.repeat,
        ids=tuple(ids),
        stats=end.stats,
        seconds=end.stats.decode_seconds,
        timed=end.stats.emitted,
        first_seconds=passes[0].seconds if passes else None,
        passes=tuple(passes),
    )
