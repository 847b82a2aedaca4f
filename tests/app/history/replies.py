"""Replies to fill a history with: plain values with defaults that make sense."""

from dataclasses import replace

from app.history.records import Conditions
from app.history.task_class import TaskClass, TemperatureClass
from engine.request import DepthCount, DrafterRun, Stats

CHAT = Conditions(
    model="pocket",
    draft="pocket-draft",
    machine="a processor, 2 cores, cpu, float32",
    temperature=TemperatureClass.GREEDY,
    task=TaskClass.CHAT,
)
EDIT = replace(CHAT, task=TaskClass.EDIT)


def run(
    drafter: str = "chain",
    depths: tuple[tuple[int, int], ...] = ((20, 15), (15, 9)),
    *,
    pace: float = 2.0,
    shares: tuple[float, ...] = (),
    share_weight: float = 0.0,
) -> DrafterRun:
    """Every pass drafts; the target adds a token to what it accepts."""
    passes, accepted = (depths[0][0] if depths else 20), sum(hits for _, hits in depths)
    emitted = passes + accepted
    return DrafterRun(
        drafter=drafter,
        passes=passes,
        emitted=emitted,
        drafted=4 * passes if depths else 0,
        accepted=accepted,
        seconds=emitted / 100 / pace,
        plain_seconds=emitted / 100,
        depths=tuple(DepthCount(*pair) for pair in depths),
        shares=shares,
        share_weight=share_weight,
    )


def stats(
    drafter: str = "auto",
    depths: tuple[DepthCount, ...] = (),
    runs: tuple[DrafterRun, ...] = (),
) -> Stats:
    return Stats(
        drafter=drafter,
        why="the prompt repeats itself",
        prompt_tokens=40,
        cached_tokens=8,
        emitted=30,
        passes=10,
        drafted=50,
        accepted=20,
        depths=depths,
        prompt_seconds=0.25,
        decode_seconds=1.5,
        runs=runs,
    )
