"""Hand-made samples, for statistics whose results are known."""

from dataclasses import replace

from app.bench.measure import Pass, Sample
from engine.request import DepthCount, DrafterRun, Stats

DEPTHS = ((3, 2), (2, 1))


def stats(
    emitted: int, passes: int, depths: tuple[tuple[int, int], ...] = (), drafter: str = "lookup"
) -> Stats:
    counts = tuple(DepthCount(*depth) for depth in depths)
    accepted = emitted - passes
    part = DrafterRun(drafter, passes, emitted, 2 * accepted, accepted, 1.0, 1.0, counts)
    return Stats(
        drafter=drafter,
        why="asked for",
        prompt_tokens=5,
        cached_tokens=0,
        emitted=emitted,
        passes=passes,
        drafted=2 * accepted,
        accepted=accepted,
        depths=counts,
        prompt_seconds=0.5,
        decode_seconds=1.0,
        runs=(part,) if passes else (),
    )


def sample(lane: str, place: tuple[int, int], ids: tuple[int, ...], seconds: float) -> Sample:
    """One prompt in one lane; ``place`` is (prompt, repeat); half as many passes as tokens."""
    number, repeat = place
    counted = replace(stats(len(ids), (len(ids) + 1) // 2, DEPTHS), decode_seconds=seconds)
    return Sample(
        lane, number, number, repeat, ids, counted, seconds, len(ids), first_seconds=seconds / 4
    )


def watched(
    drafter: str, ids: tuple[int, ...], rate: float, place: tuple[int, int] = (1, 1)
) -> Sample:
    """``ids`` at this rate with their passes, two tokens a pass; plain one a pass."""
    step = 1 if drafter == "none" else 2
    groups = [ids[at : at + step] for at in range(0, len(ids), step)]
    passes = tuple(
        Pass((at + 1) * step / rate, len(group), "x" * len(group), 2, len(group) - 1)
        for at, group in enumerate(groups)
    )
    depths = () if drafter == "none" else ((4, 3), (3, 1))
    counted = stats(len(ids), len(groups), depths, drafter)
    one = sample(drafter, place, ids, len(ids) / rate)
    return replace(one, stats=counted, passes=passes, first_seconds=passes[0].seconds)
