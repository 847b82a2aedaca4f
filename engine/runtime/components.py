"""What ``build`` puts together and the engine runs."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter

from engine.errors import NumericalError
from engine.grammar.vocabulary import Speller
from engine.interfaces.target import Target
from engine.request import ModelFacts, SamplingParams
from engine.runtime.drafter_pool import DrafterPool
from engine.runtime.profiling import IdleMeasurement
from engine.speculation.rng import RandomSource
from engine.speculation.tree import DraftTree
from engine.speculation.verify import Logits, Verdict
from engine.statistics.pass_cost import PassCost

Verify = Callable[
    [Sequence[DraftTree], Sequence[Logits], Sequence[SamplingParams], Sequence[RandomSource]],
    list[Verdict | NumericalError],
]
"""Verify one step: trees, their logits [N, V], each request's sampling and its random numbers.

For logits that are not finite, an error instead of a verdict; other requests are not affected."""


@dataclass(frozen=True, slots=True)
class CacheCapacity:
    """What the caches of all slots hold together."""

    rows: int
    taken: Callable[[int, int], int]  # by a slot with that number of tokens
    apart: int = 0  # rows of idle conversations, where these are swapped out


@dataclass(frozen=True, slots=True)
class EngineComponents:
    """What ``build`` puts together: one target; drafters and lengths are made on demand."""

    target: Target
    draft_model: Target | None
    drafters: DrafterPool
    cost: PassCost
    facts: ModelFacts
    slots: int  # requests that run at once
    warm: int  # further slots, which are free
    room: CacheCapacity
    verify: Verify
    margin: float  # as in DrafterResources
    damage: str  # the error for logits that are not finite
    rng: Callable[[int | None], RandomSource]  # of a request with this seed
    speller: Speller | None  # None: no request can have a grammar
    later: IdleMeasurement | None = None  # what the load left to measure
    clock: Callable[[], float] = perf_counter  # seconds

    @property
    def models(self) -> tuple[Target, ...]:
        """The target and, where there is one, the draft model."""
        return (self.target,) if self.draft_model is None else (self.target, self.draft_model)
