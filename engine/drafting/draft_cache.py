"""Keeps a draft model's cache in step with the tokens that the target committed."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from time import perf_counter

from engine.drafting.tuning import TUNING
from engine.errors import OutOfMemory
from engine.interfaces.drafter import Context, Outcome
from engine.interfaces.target import SHARED, Grown, Rows, Target
from engine.speculation.common_prefix import common_prefix
from engine.statistics.decayed import Decayed


@dataclass(frozen=True, slots=True)
class NewNodes:
    """Nodes of a tree (tokens, parents) to feed; their parents were fed before."""

    slot: int
    nodes: Sequence[int]
    tokens: Sequence[int]
    parents: Sequence[int]


@dataclass
class _FedRows:
    """Uncommitted rows of a slot in this round."""

    rows: dict[int, int] = field(default_factory=dict)  # tree node -> uncommitted row
    missing: int = 0  # rows before the tree's nodes, its root's row among them
    length: int = 0  # committed tokens when the draft began


class DraftCache:
    """Rows of a draft model, addressed by the nodes of the tree that is being drafted.

    A round is ``start`` (returns the root's scores), any number of ``grow``, then ``settle`` with the
    outcome: accepted nodes that were grown stay cached, so the next round feeds only what the draft
    model has not seen. Several drafters share one draft model, so the content of a slot is compared
    first. Slots take over common prefixes from each other. Each call makes one pass for all requests.
    """

    def __init__(
        self,
        model: Target,
        read: float = 0.0,
        clock: Callable[[], float] = perf_counter,
    ) -> None:
        """``read``: seconds to read a token, until the first text was read; 0: unknown."""
        self._clock = clock
        self._model = model
        self._slots: set[int] = set()  # that were started, and may hold a prefix that another needs
        self._fed: dict[int, _FedRows] = {}
        least = TUNING.least_reading
        self._reading = Decayed(least * read, least)  # seconds per token

    def start(self, batch: Sequence[Context]) -> list[Grown]:
        """Catch up with the committed tokens; scores [1, ...] of the newest one."""
        started, unread, rows = self._clock(), 0, []
        for place, context in enumerate(batch, 1):
            known = self._taken_over(context)
            unread += len(context.ids) - known
            rows.append(self._missing(context, known, self._common(context, known, batch[place:])))
        grown = self._model.grow(rows)
        if unread >= TUNING.least_reading:
            seconds = self._clock() - started
            self._reading.add(seconds, unread, TUNING.reading_memory)
        return grown

    def grow(self, batch: Sequence[NewNodes]) -> list[Grown]:
        """Feed nodes: scores [n, ...] for each request."""
        return self._model.grow([self._rows(new) for new in batch])

    def relabel(self, slot: int, place: Mapping[int, int]) -> None:
        """Nodes were renumbered old -> new; nodes without a new number left the tree."""
        fed_rows = self._fed[slot]
        fed_rows.rows = {place[n]: row for n, row in fed_rows.rows.items() if n in place}

    def room(self, context: Context) -> int:
        """Tokens that still fit into the draft model's own context."""
        return self._model.context - len(context.ids)

    def reading(self, context: Context) -> float:
        """Seconds that ``start`` will take to read what was not seen."""
        known = max(self._known(context), self._elsewhere(context)[0])
        return (len(context.ids) - known) * self._reading.share()

    def read(self, context: Context) -> bool:
        """Feed one chunk of what was not seen; False if there was nothing but the newest token."""
        if self.room(context) < 0:
            return False
        known = self._taken_over(context)
        self._model.crop(context.slot, known)
        chunk = context.ids[known:-1][: TUNING.prompt_chunk]
        if chunk:
            self._model.feed(context.slot, chunk)
        return bool(chunk)

    def settle(self, outcome: Outcome) -> None:
        """Commit the fed rows of the accepted path."""
        slot = outcome.context.slot
        fed_rows = self._fed.pop(slot, None)
        if fed_rows is None or fed_rows.length != len(outcome.context.ids):
            return  # nothing was fed this round; an earlier draft may have been abandoned
        kept = [fed_rows.rows[n] for n in outcome.verdict.path if n and n in fed_rows.rows]
        self._model.commit(slot, [*range(fed_rows.missing), *kept])

    def forget(self, slot: int) -> None:
        """Drop what was fed for a draft that was never verified: its request ended."""
        self._fed.pop(slot, None)

    def _known(self, context: Context) -> int:
        """Tokens of this request that the slot holds; the newest is always fed."""
        return common_prefix(self._model.tokens(context.slot), context.ids[:-1])

    def _elsewhere(self, context: Context) -> tuple[int, int]:
        """Tokens of this request that another slot holds, and which slot; 0 where slots share nothing."""
        if not self._model.can_share:
            return 0, context.slot
        others = self._slots - {context.slot}
        held = (
            (common_prefix(self._model.tokens(slot), context.ids[:-1]), slot) for slot in others
        )
        return max(held, default=(0, context.slot))

    def _taken_over(self, context: Context) -> int:
        """Tokens that the slot holds, after taking over those of another slot where these are more."""
        known = self._known(context)
        self._slots.add(context.slot)
        if not self._model.can_share or len(context.ids) - known <= SHARED:
            return known
        held, source = self._elsewhere(context)
        if held - known >= SHARED:
            with suppress(OutOfMemory):  # then it is read
                self._model.share(source, context.slot, held)
        return self._known(context)  # unchanged where there was no room

    def _common(self, context: Context, known: int, later: Sequence[Context]) -> int:
        """Tokens to commit first, since ``later`` requests of the batch start with them too."""
        if not self._model.can_share or len(context.ids) - known <= SHARED:
            return 0
        common = [common_prefix(context.ids[:-1], other.ids[:-1]) for other in later]
        return max(common, default=0)

    def _missing(self, context: Context, known: int, common: int) -> Rows:
        """The tokens that the slot does not hold; of long prompts only the last chunk is left."""
        slot, ids = context.slot, context.ids
        self._model.crop(slot, known)
        while len(ids) - known > TUNING.prompt_chunk or common - known >= SHARED:
            end = known + TUNING.prompt_chunk
            end = min(end, common) if common - known >= SHARED else end
            self._model.feed(slot, ids[known:end])
            known = end
        missing = len(ids) - known
        self._fed[slot] = _FedRows({0: missing - 1}, missing, len(ids))
        return Rows(slot, ids[known:], range(-1, missing - 1), last=1)

    def _rows(self, new: NewNodes) -> Rows:
        fed_rows = self._fed[new.slot]
        first = self._model.pending(new.slot)
        parents = [fed_rows.rows[new.parents[node]] for node in new.nodes]
        fed_rows.rows |= {node: first + i for i, node in enumerate(new.nodes)}
        return Rows(new.slot, [new.tokens[node] for node in new.nodes], parents)
