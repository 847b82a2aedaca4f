"""Hand-made runs, for results whose figures are known."""

from dataclasses import replace

from app.bench.compare.isolated_run import Pass, Run
from engine.request import DepthCount, DrafterRun, Stats

DEPTHS = (DepthCount(4, 3), DepthCount(3, 1))
STATS = Stats(
    drafter="lookup",
    why="asked for",
    prompt_tokens=5,
    cached_tokens=0,
    emitted=0,
    passes=0,
    drafted=8,
    accepted=4,
    depths=DEPTHS,
    prompt_seconds=0.5,
    decode_seconds=1.0,
)


def run(drafter: str, ids: tuple[int, ...], rate: float) -> Run:
    """``ids`` at so many tokens a second, two of them a pass; plain one a pass."""
    step = 1 if drafter == "none" else 2
    groups = [ids[at : at + step] for at in range(0, len(ids), step)]
    passes = tuple(
        Pass((at + 1) * step / rate, len(group), "x" * len(group), 2, len(group) - 1)
        for at, group in enumerate(groups)
    )
    told: dict[str, object] = {"emitted": len(ids), "passes": len(groups)}
    told["accepted"] = len(ids) - len(groups)
    if drafter == "none":
        told |= {"drafted": 0, "depths": ()}
    part = DrafterRun(drafter, len(groups), len(ids), 8, 4, 1.0, 1.0, DEPTHS)
    told |= {"drafter": drafter, "runs": (part,), "decode_seconds": len(ids) / rate}
    return Run(drafter, ids, passes, replace(STATS, **told))
