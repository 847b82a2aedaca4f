"""Machinery: what ``build`` puts together and the engine runs."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from engine.errors import NumericalError
from engine.grammar.token_bytes import Speller
from engine.interfaces.drafter import Drafter, DraftLength
from engine.interfaces.target import Target
from engine.request import ModelFacts, SamplingParams
from engine.speculation.rng import RandomSource
from engine.speculation.tree import DraftTree
from engine.speculation.verify import Logits, Verdict
from engine.statistics.pass_cost import PassCost

Options = tuple[tuple[str, float], ...]

THROWN_AWAY: Options = (("warm_up", 1.0),)  # read by nobody: drafters are made for each set

Verify = Callable[
    [Sequence[DraftTree], Sequence[Logits], Sequence[SamplingParams], Sequence[RandomSource]],
    list[Verdict | NumericalError],
]
"""Judge one round: trees, their logits [N, V], each request's law and its random numbers.

Of logits that are not finite, which are no matter of the other requests', the error."""


@dataclass(frozen=True, slots=True)
class CacheCapacity:
    """What the caches of all slots hold together."""

    rows: int
    taken: Callable[[int, int], int]  # by a slot with so many tokens
    apart: int = 0  # rows of conversations that nobody goes on with, where they are put away


@dataclass(frozen=True, slots=True)
class EngineComponents:
    """What ``build`` puts together: one target; drafters and policies are made on demand."""

    target: Target
    draft_model: Target | None
    choose: Callable[[str], tuple[str, str]]  # asked for -> (drafter, why); raises InvalidRequest
    drafter: Callable[[str, Options], Drafter]
    length: Callable[[str, str, Options], DraftLength]  # (policy, drafter); raises InvalidRequest
    cost: PassCost
    facts: ModelFacts
    slots: int  # requests that run at once
    warm: int  # further slots, which are free
    room: CacheCapacity
    verify: Verify
    damage: str  # what is said of logits that are not finite
    chance: Callable[[int | None], RandomSource]  # of a request with this seed
    speller: Speller | None  # None: no request can have a grammar

    @property
    def models(self) -> tuple[Target, ...]:
        """The target and, where there is one, the draft model."""
        return (self.target,) if self.draft_model is None else (self.target, self.draft_model)
