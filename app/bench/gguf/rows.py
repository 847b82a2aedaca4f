"""What is claimed of one GGUF file, and whether it holds."""

from app.bench.gguf.measure import AUTO, CHORES, OURS, PROBLEMS, Figures
from app.bench.gguf.rivals import LOOKUP, PLAIN
from app.bench.papers.row import Check, Row, row

NEVER_SLOWER = 0.97
COPIES, SOLVES = 1.8, 1.3


def rows(kind: str, figures: Figures) -> list[Row]:
    """Plain against llama-cpp-python's plain, auto against plain, auto against its prompt lookup."""
    found = figures.categories()
    rates = {
        f"{kind}, {category}, {lane}, tokens/s": round(figures.rate(category, lane), 1)
        for category in found
        for lane in (OURS, AUTO, PLAIN, LOOKUP)
    }
    rates[f"{kind}, answers"] = len(figures.races)
    rates[f"{kind}, answers of auto that are plain's, token by token"] = figures.same(AUTO, OURS)
    own = [_check(figures, category, OURS, PLAIN, NEVER_SLOWER) for category in found]
    never = [_check(figures, category, AUTO, OURS, NEVER_SLOWER) for category in found]
    never += [_check(figures, CHORES, AUTO, OURS, COPIES)] if CHORES in found else []
    if kind == "bf16" and PROBLEMS in found:
        never.append(_check(figures, PROBLEMS, AUTO, OURS, SOLVES))
    ahead = [_check(figures, category, AUTO, LOOKUP, 1.0) for category in found]
    return [
        row(f"{kind}: plain as fast as llama-cpp-python", own, rates),
        row(f"{kind}: auto never slower than plain, and faster", never, rates),
        row(f"{kind}: auto ahead of llama-cpp-python's prompt lookup", ahead, rates),
    ]


def _check(figures: Figures, category: str, lane: str, other: str, least: float) -> Check:
    return Check(f"{category}: {lane} over {other}", figures.ratio(category, lane, other), least)
