"""What a draft model's steps cost on this machine, measured once when a model is loaded."""

import time
from collections.abc import Callable, Mapping
from statistics import median

from engine.interfaces.drafter import DrafterResources
from engine.interfaces.target import Rows, Target
from engine.speculation.sampling import check_finite

DRAFT_STEP = "draft step"  # seconds of one row through the draft model
DRAFT_READ = "draft read"  # seconds for each token of a text that it reads at once
STEP_REPEATS = 10
READ_ROWS, READ_REPEATS, READ_SECONDS = 64, 3, 0.5  # tokens of a text, times that it is read


def measure_draft_model(resources: DrafterResources) -> Mapping[str, float]:
    """Both costs, unless they are measured already. Raises NumericalError for damaged weights."""
    model = resources.draft_model
    if model is None or DRAFT_STEP in resources.measured:
        return {}
    return {DRAFT_STEP: step_seconds(model), DRAFT_READ: read_seconds(model)}


def step_seconds(draft: Target) -> float:
    """Seconds of one draft step: a single row."""

    def step() -> None:
        (grown,) = draft.grow([Rows(0, [0], [-1])])
        check_finite(grown.logits.amax(-1))
        draft.crop(0, 0)

    return median(timed(step, STEP_REPEATS))


def read_seconds(draft: Target) -> float:
    """Seconds for each token of a text that the draft model reads at once.

    Without this number auto might let it read a prompt for minutes to draft an answer of seconds.
    """
    tokens = min(READ_ROWS, draft.context)

    def read() -> None:
        draft.feed(0, [0] * tokens)
        draft.crop(0, 0)

    return min(timed(read, READ_REPEATS, READ_SECONDS)) / tokens


def timed(work: Callable[[], object], repeats: int, enough: float = float("inf")) -> list[float]:
    """Seconds of each repeat, at least of one; no further one after ``enough`` seconds."""
    times: list[float] = []
    until = time.perf_counter() + enough
    while len(times) < repeats and (not times or time.perf_counter() < until):
        started = time.perf_counter()
        work()
        times.append(time.perf_counter() - started)
    return times
