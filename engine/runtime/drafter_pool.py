"""The drafters and draft lengths of every set of options, made when they are first asked for."""

from collections.abc import Sequence
from dataclasses import replace

from engine.drafters import DRAFTERS
from engine.errors import InvalidRequest
from engine.interfaces.drafter import Arm, Drafter, DrafterResources, DraftLength
from engine.interfaces.target import Capability
from engine.request import PLAIN, SHARED_STATE, GenerationRequest, check_options, nearest
from engine.runtime.registry import DEFAULT, drafter_class, length_class, options_of

Options = tuple[tuple[str, float], ...]

_Set = tuple[str, Options]  # a state and options: whose drafters share what they learn

KEPT_SETS = 32  # of those that no request uses any more


class DrafterPool:
    """What drafters and lengths learn outlives requests; those with the same state and options share it."""

    def __init__(
        self, resources: DrafterResources, able: tuple[str, ...], refused: dict[str, str]
    ) -> None:
        """``able`` can run here; ``refused`` cannot, with the reason of each."""
        self._resources, self._able, self._refused = resources, able, refused
        self.clear()

    def clear(self) -> None:
        """Drop everything, with what was learned."""
        self._drafters: dict[tuple[_Set, str], Drafter] = {}
        self._lengths: dict[tuple[_Set, str, str], DraftLength] = {}

    def of(self, request: GenerationRequest) -> tuple[Drafter, DraftLength]:
        """What drafts for a request, and how far. Raises InvalidRequest."""
        name, length, options = request.drafter, request.length, request.options
        if name in self._refused:
            raise InvalidRequest(f"drafter {name!r} cannot run here: {self._refused[name]}")
        if name not in self._able:
            known = [one for one in (*self._able, *self._refused) if drafter_class(one).listed]
            raise InvalidRequest(f"there is no drafter {name!r}{nearest(name, known)}")
        kept = _set_of(request)
        if (kept, length, name) not in self._lengths:
            owner = f"drafter {name!r} with draft length {length!r}"
            check_options(owner, options_of(name, length), dict(options))
            made = new_length(self._resources, length, name, options)
            self._lengths[kept, length, name] = made
        if (kept, name) not in self._drafters:
            self._drafters[kept, name] = new_drafter(self._resources, self._able, name, options)
        return self._drafters[kept, name], self._lengths[kept, length, name]

    def forget(self, requests: Sequence[GenerationRequest]) -> None:
        """Drop the oldest sets that none of these requests uses, but for the usual one."""
        used = {(SHARED_STATE, ()), *map(_set_of, requests)}
        idle = [one for one in dict.fromkeys(one for one, _ in self._drafters) if one not in used]
        dropped = set(idle[:-KEPT_SETS])
        if dropped:
            self._drafters = {k: one for k, one in self._drafters.items() if k[0] not in dropped}
            self._lengths = {k: one for k, one in self._lengths.items() if k[0] not in dropped}


def _set_of(request: GenerationRequest) -> _Set:
    return request.drafter_state, request.options


def new_drafter(
    resources: DrafterResources, able: tuple[str, ...], name: str, options: Options = ()
) -> Drafter:
    """A drafter that has learned nothing; one with arms gets all of the ``able`` ones."""
    kind = drafter_class(name)
    chosen = replace(resources, options={**resources.options, **dict(options)})
    if kind.has_arms:
        chosen = replace(chosen, arms=_arms(chosen, able))
    return kind(chosen)


def _arms(resources: DrafterResources, able: tuple[str, ...]) -> dict[str, Arm]:
    """The other drafters, each with its own length; unlisted ones only where another one drafts."""
    kinds = {name: drafter_class(name) for name in able}
    names = [name for name, kind in kinds.items() if not kind.has_arms]
    if all(name == PLAIN or not kinds[name].listed for name in names):
        names = [name for name in names if kinds[name].listed]
    return {
        name: Arm(new_drafter(resources, able, name), new_length(resources, DEFAULT, name))
        for name in names
    }


def new_length(
    resources: DrafterResources, name: str, drafter: str, options: Options = ()
) -> DraftLength:
    """A draft length that has learned nothing; raises InvalidRequest where the drafter cannot follow it."""
    drafting, kind = drafter_class(drafter), length_class(name, drafter)
    if missing := kind.stop_rules - drafting.stop_rules:
        able = [one for one in DRAFTERS if kind.stop_rules <= drafter_class(one).stop_rules]
        raise InvalidRequest(
            f"draft length {name!r} ends drafts by {' and '.join(sorted(missing))}, which drafter "
            f"{drafter!r} does not follow; choose the draft length {drafting.default_length!r}, or "
            f"one of the drafters {', '.join(able)}"
        )
    longest = drafting.max_draft
    chains = Capability.DRAFT_MODEL in drafting.needs and longest.nodes <= longest.depth
    own = replace(
        resources,
        options=dict(options),  # not the model's own exit layer, which is the drafter's business
        step_seconds=resources.measured.get(drafting.step_cost, 0.0) if chains else 0.0,
        stop_rules=drafting.stop_rules,
    )
    return kind(own, drafter)
