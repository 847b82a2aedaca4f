"""Follower: keeps a draft model's cache in step with the tokens that the target committed."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from time import perf_counter

from engine.errors import OutOfMemory
from engine.interfaces.drafter import Context, Outcome
from engine.interfaces.target import SHARED, Grown, Rows, Target
from engine.speculation.common_prefix import common_prefix

_PROMPT_CHUNK = 256
_TELLING = 32  # tokens read at once, from which what one of them takes can be told
_FADING = 0.8  # weight of earlier readings


@dataclass(frozen=True, slots=True)
class NewNodes:
    """Nodes of a tree (tokens, parents) to feed; their parents were fed before."""

    slot: int
    nodes: Sequence[int]
    tokens: Sequence[int]
    parents: Sequence[int]


@dataclass
class _Trail:
    rows: dict[int, int] = field(default_factory=dict)  # tree node -> uncommitted row
    missing: int = 0  # rows before the tree's nodes, its root's row among them
    length: int = 0  # committed tokens when the draft began


@dataclass
class _Reading:
    """Seconds that tokens took to read, both faded."""

    tokens: float
    seconds: float

    def add(self, tokens: int, seconds: float) -> None:
        self.tokens = _FADING * self.tokens + tokens
        self.seconds = _FADING * self.seconds + seconds

    @property
    def each(self) -> float:
        return self.seconds / self.tokens


class DraftCache:
    """Rows of a draft model, addressed by the nodes of the tree that is being drafted.

    A round is ``start`` (gives the root's scores), any number of ``grow``, then ``settle`` with
    the outcome: accepted nodes that were grown stay cached, so the next round feeds only what the
    draft model has not seen. Nothing is assumed of a slot: several drafters share one draft model,
    so what it holds is compared first. What one slot has read another takes over, as the target's do:
    several answers to one question read it once. Every call takes several requests and makes one pass.
    """

    def __init__(self, model: Target, read: float = 0.0) -> None:
        """``read``: seconds for each token of a text, until the first one was read; 0: not known."""
        self._model = model
        self._slots: set[int] = set()  # that were started, and may hold what another one needs
        self._trails: dict[int, _Trail] = {}
        self._reading = _Reading(_TELLING, _TELLING * read)

    def start(self, batch: Sequence[Context]) -> list[Grown]:
        """Catch up with the committed tokens; scores [1, ...] of the newest one."""
        started, unread, rows = perf_counter(), 0, []
        for place, context in enumerate(batch, 1):
            known = self._taken_over(context)
            unread += len(context.ids) - known
            rows.append(self._missing(context, known, self._common(context, known, batch[place:])))
        grown = self._model.grow(rows)
        if unread >= _TELLING:
            self._reading.add(unread, perf_counter() - started)
        return grown

    def grow(self, batch: Sequence[NewNodes]) -> list[Grown]:
        """Feed nodes: scores [n, ...] for each request."""
        return self._model.grow([self._rows(growth) for growth in batch])

    def relabel(self, slot: int, place: Mapping[int, int]) -> None:
        """Nodes were renumbered old -> new; nodes without a new number left the tree."""
        trail = self._trails[slot]
        trail.rows = {place[n]: row for n, row in trail.rows.items() if n in place}

    def room(self, context: Context) -> int:
        """Tokens that the draft model's own context still holds behind this one."""
        return self._model.context - len(context.ids)

    def reading(self, context: Context) -> float:
        """Seconds that ``start`` is going to take for what was not seen."""
        known = max(self._known(context), self._elsewhere(context)[0])
        return (len(context.ids) - known) * self._reading.each

    def read(self, context: Context) -> bool:
        """Feed one chunk of what was not seen; False where all was, up to the newest token."""
        if self.room(context) < 0:
            return False
        known = self._taken_over(context)
        self._model.crop(context.slot, known)
        chunk = context.ids[known:-1][:_PROMPT_CHUNK]
        if chunk:
            self._model.feed(context.slot, chunk)
        return bool(chunk)

    def settle(self, outcome: Outcome) -> None:
        """Commit the fed rows of the accepted path."""
        slot = outcome.context.slot
        trail = self._trails.pop(slot, None)
        if trail is None or trail.length != len(outcome.context.ids):
            return  # nothing was fed this round; an earlier draft may have broken off
        fed = [trail.rows[n] for n in outcome.verdict.path if n and n in trail.rows]
        self._model.commit(slot, [*range(trail.missing), *fed])

    def forget(self, slot: int) -> None:
        """What was fed for a draft that nobody judged is not kept: its request ended before."""
        self._trails.pop(slot, None)

    def _known(self, context: Context) -> int:
        """Tokens of this one that the slot holds; the newest is always fed."""
        return common_prefix(self._model.tokens(context.slot), context.ids[:-1])

    def _elsewhere(self, context: Context) -> tuple[int, int]:
        """How many tokens of this one another slot holds, and which; 0 where slots share nothing."""
        if not self._model.can_share:
            return 0, context.slot
        others = self._slots - {context.slot}
        held = (
            (common_prefix(self._model.tokens(slot), context.ids[:-1]), slot) for slot in others
        )
        return max(held, default=(0, context.slot))

    def _taken_over(self, context: Context) -> int:
        """Tokens that the slot holds, those of another slot among them where these are more."""
        known = self._known(context)
        self._slots.add(context.slot)
        if not self._model.can_share or len(context.ids) - known <= SHARED:
            return known
        held, source = self._elsewhere(context)
        if held - known >= SHARED:
            with suppress(OutOfMemory):  # then it is read
                self._model.share(source, context.slot, held)
        return self._known(context)  # none where there was no room for them

    def _common(self, context: Context, known: int, later: Sequence[Context]) -> int:
        """Tokens to commit before the others, since requests behind this one begin with them too."""
        if not self._model.can_share or len(context.ids) - known <= SHARED:
            return 0
        common = [common_prefix(context.ids[:-1], other.ids[:-1]) for other in later]
        return max(common, default=0)

    def _missing(self, context: Context, known: int, common: int) -> Rows:
        """The tokens behind those that the slot holds, long prompts fed up to the last chunk."""
        slot, ids = context.slot, context.ids
        self._model.crop(slot, known)
        while len(ids) - known > _PROMPT_CHUNK or common - known >= SHARED:
            end = known + _PROMPT_CHUNK
            end = min(end, common) if common - known >= SHARED else end
            self._model.feed(slot, ids[known:end])
            known = end
        missing = len(ids) - known
        self._trails[slot] = _Trail({0: missing - 1}, missing, len(ids))
        return Rows(slot, ids[known:], range(-1, missing - 1), last=1)

    def _rows(self, growth: NewNodes) -> Rows:
        trail = self._trails[growth.slot]
        first = self._model.pending(growth.slot)
        parents = [trail.rows[growth.parents[node]] for node in growth.nodes]
        trail.rows |= {node: first + i for i, node in enumerate(growth.nodes)}
        return Rows(growth.slot, [growth.tokens[node] for node in growth.nodes], parents)
