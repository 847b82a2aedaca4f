"""Hand-made runs, for statistics whose results are known."""

from app.bench.run import Answer, Sample
from engine.request import DepthCount, DrafterRun, Stats


def stats(emitted: int, passes: int, depths: tuple[tuple[int, int], ...] = ()) -> Stats:
    counts = tuple(DepthCount(*depth) for depth in depths)
    accepted = emitted - passes
    run = DrafterRun("lookup", passes, emitted, 2 * accepted, accepted, 1.0, 1.0, counts)
    return Stats(
        drafter="lookup",
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
        runs=(run,) if passes else (),
    )


def sample(lane: str, place: tuple[int, int], ids: tuple[int, ...], seconds: float) -> Sample:
    """One prompt in one lane; ``place`` is (prompt, repeat); half as many passes as tokens."""
    number, repeat = place
    counted = stats(len(ids), (len(ids) + 1) // 2, ((3, 2), (2, 1)))
    return Sample(lane, number, repeat, (Answer(number, ids, counted, seconds / 4),), seconds)
