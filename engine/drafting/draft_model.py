"""A draft model at work: its cache, and what its steps cost on this machine."""

import time
from collections.abc import Callable, Mapping, Sequence
from statistics import median

from typing_extensions import override

from engine.drafting.draft_cache import DraftCache
from engine.interfaces.drafter import Context, Drafter, DrafterResources, Outcome
from engine.interfaces.target import Rows, Target
from engine.speculation.sampling import check_finite

DRAFT_STEP = "draft step"  # seconds of one row through the draft model
DRAFT_READ = "draft read"  # seconds for each token of a text that it reads at once
STEP_REPEATS = 10
READ_ROWS, READ_REPEATS, READ_SECONDS = 64, 3, 0.5  # tokens of a text, times that it is read


class ModelDrafter(Drafter):
    """A drafter whose tokens come from the draft model; measures its costs and keeps its cache."""

    step_cost = DRAFT_STEP

    def __init__(self, parts: DrafterResources) -> None:
        """Take the draft model of ``parts``."""
        assert parts.draft_model is not None  # ``needs`` was checked when the engine was built
        self._clock = parts.clock
        self._cache = DraftCache(
            parts.draft_model, parts.measured.get(DRAFT_READ, 0.0), parts.clock
        )
        self.step_seconds = parts.measured.get(DRAFT_STEP, 0.0)

    @classmethod
    @override
    def measure(cls, resources: DrafterResources) -> Mapping[str, float]:
        """Both costs, unless they are measured already. Raises NumericalError for damaged weights."""
        model = resources.draft_model
        if model is None or DRAFT_STEP in resources.measured:
            return {}
        return {DRAFT_STEP: step_seconds(model), DRAFT_READ: read_seconds(model)}

    @override
    def observe(self, outcomes: Sequence[Outcome]) -> None:
        """Keep the draft model's cache of accepted tokens."""
        for outcome in outcomes:
            self._cache.settle(outcome)

    @override
    def prefill_seconds(self, context: Context) -> float:
        """Seconds that the draft model needs to catch up with the request."""
        return self._cache.reading(context)

    @override
    def prefill(self, context: Context) -> bool:
        """Let the draft model read one more chunk of the request's prompt."""
        return self._cache.read(context)

    @override
    def forget(self, request: int, slot: int) -> None:
        """The slot's cache stays: its next request may share the prefix."""
        self._cache.forget(slot)


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
