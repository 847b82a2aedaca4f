"""Seats: the drafters and length policies of every set of options, made when they are first asked for."""

from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from engine.interfaces.drafter import Arbiter, Drafter, DraftLength, Reader
from engine.runtime.components import EngineComponents, Options

KEPT_OPTIONS = 32  # sets of a request's options whose drafters outlive it


@dataclass(frozen=True, slots=True)
class PooledDrafter:
    """A drafter, and what else it is: asking that of a protocol in every round takes too long."""

    drafter: Drafter
    arbiter: Arbiter | None
    plain: bool  # it never drafts
    readers: tuple[Reader, ...] = ()  # it, or those that it arbitrates between


def pooled(drafter: Drafter) -> PooledDrafter:
    """The seat of a drafter."""
    arbiter = drafter if isinstance(drafter, Arbiter) else None
    arms = (drafter,) if arbiter is None else [arm.drafter for arm in arbiter.arms.values()]
    readers = tuple(arm for arm in arms if isinstance(arm, Reader))
    return PooledDrafter(drafter, arbiter, drafter.length.nodes == 0, readers)


class DrafterPool:
    """What drafters and policies learn outlives requests: those with the same options share them."""

    def __init__(self, machinery: EngineComponents) -> None:
        """Nothing is made yet."""
        self._machinery = machinery
        self.made: dict[tuple[str, Options], PooledDrafter] = {}
        self.policies: dict[tuple[str, str, Options], DraftLength] = {}

    def seat(self, drafter: str, options: Options) -> PooledDrafter:
        """The drafter of this name with these options."""
        key = (drafter, options)
        if key not in self.made:
            self.made[key] = pooled(self._machinery.drafter(*key))
        return self.made[key]

    def policy(self, name: str, drafter: str, options: Options) -> DraftLength:
        """The drafter's length policy of this name; raises InvalidRequest."""
        key = (name, drafter, options)
        if key not in self.policies:
            self.policies[key] = self._machinery.length(*key)
        return self.policies[key]

    def forget(self, used: AbstractSet[Options]) -> None:
        """The oldest drafters made for options that no request has any more go, with what they remember."""
        known = dict.fromkeys(options for _, options in self.made)
        idle = [options for options in known if options and options not in used]
        for options in idle[:-KEPT_OPTIONS]:
            self.made = {key: seat for key, seat in self.made.items() if key[1] != options}
            self.policies = {key: own for key, own in self.policies.items() if key[2] != options}
