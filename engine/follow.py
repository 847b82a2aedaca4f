"""Follower: keeps a draft model's cache in step with the tokens that the target committed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from torch import Tensor

from engine.protocols import Context, DraftModel, Outcome

_PROMPT_CHUNK = 256


@dataclass
class _Trail:
    ids: list[int] = field(default_factory=list)  # committed in the draft model's cache
    rows: dict[int, int] = field(default_factory=dict)  # tree node -> uncommitted row
    missing: list[int] = field(default_factory=list)  # tokens in the rows before the tree's root


class Follower:
    """Rows of a draft model, addressed by the nodes of the tree that is being drafted.

    A round is ``start`` (returns the root's logits), any number of ``grow``, then ``settle`` with
    the outcome: accepted nodes that were grown stay cached, so the next round feeds only what the
    draft model has not seen. Nothing is assumed of a slot: whatever it holds is compared first.
    """

    def __init__(self, model: DraftModel) -> None:
        self._model = model
        self._trails: dict[int, _Trail] = {}

    def start(self, context: Context) -> Tensor:
        """Catch up with the committed tokens; logits [V] after the newest one."""
        trail = self._trails.setdefault(context.slot, _Trail())
        known = _common(trail.ids, context.ids[:-1])
        self._model.crop(context.slot, known)
        del trail.ids[known:]
        while len(context.ids) - len(trail.ids) > _PROMPT_CHUNK:
            chunk = list(context.ids[len(trail.ids) : len(trail.ids) + _PROMPT_CHUNK])
            self._model.feed(context.slot, chunk)
            trail.ids += chunk
        trail.missing = list(context.ids[len(trail.ids) :])
        trail.rows = {0: len(trail.missing) - 1}
        parents = range(-1, len(trail.missing) - 1)
        return self._model.grow(context.slot, trail.missing, parents)[-1]

    def grow(self, slot: int, nodes: Sequence[int], tree: tuple[list[int], list[int]]) -> Tensor:
        """Feed nodes of the tree (tokens, parents): logits [n, V]; their parents were fed before."""
        trail = self._trails[slot]
        first = self._model.pending(slot)
        rows = [trail.rows[tree[1][node]] for node in nodes]
        trail.rows |= {node: first + i for i, node in enumerate(nodes)}
        return self._model.grow(slot, [tree[0][node] for node in nodes], rows)

    def relabel(self, slot: int, place: Mapping[int, int]) -> None:
        """Nodes were renumbered old -> new; nodes without a new number left the tree."""
        trail = self._trails[slot]
        trail.rows = {place[n]: row for n, row in trail.rows.items() if n in place}

    def room(self, context: Context) -> int:
        """Tokens that the draft model's own context still holds behind this one."""
        return self._model.context - len(context.ids)

    def settle(self, outcome: Outcome) -> None:
        """Commit the fed rows of the accepted path."""
        slot = outcome.context.slot
        trail = self._trails.get(slot)
        if trail is None or not trail.rows:
            return
        fed = [n for n in outcome.verdict.path if n in trail.rows]
        rows = [*range(len(trail.missing)), *(trail.rows[n] for n in fed if n)]
        self._model.commit(slot, rows)
        trail.ids += trail.missing + [outcome.tree.tokens[n] for n in fed if n]
        trail.rows, trail.missing = {}, []


def _common(known: Sequence[int], wanted: Sequence[int]) -> int:
    """Length of the common prefix."""
    limit = min(len(known), len(wanted))
    if list(known[:limit]) == list(wanted[:limit]):
        return limit
    return next(i for i in range(limit) if known[i] != wanted[i])
