"""Slots of GGUF targets: what these targets have in common, and what a slot of trees holds."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from typing_extensions import override

from engine.errors import ModelUnusable
from engine.interfaces.target import Rows, Target
from engine.models.gguf.context import LlamaContext
from engine.request import ModelSpec


class Held(Protocol):
    """What one slot holds."""

    committed: list[int]


class GgufTarget(Target):
    """Its slots are in ``_slots``; ``most_slots`` is how many conversations there may be."""

    most_slots: int
    can_share = True
    limits_rows = True
    lends_rows = True
    llama: LlamaContext
    _slots: Mapping[int, Held]

    def _check(self, spec: ModelSpec) -> None:
        if spec.slots > self.most_slots:
            raise ModelUnusable(
                f"{spec.slots} conversations at once are too many for a GGUF file; "
                f"ask for at most {self.most_slots}"
            )

    def _take_over(self, llama: LlamaContext) -> None:
        """Tell of the file what its context knows."""
        self.context, self.vocab = llama.context, llama.vocab
        self.layers, self.parameters = llama.layers, llama.parameters
        self.swap_bytes = llama.token_bytes
        self._abort: Callable[[], bool] = bool

    @override
    def abort_when(self, aborted: Callable[[], bool]) -> bool:
        """Checked inside llama.cpp."""
        self._abort = aborted
        return True

    @override
    def length(self, slot: int) -> int:
        return len(self._slots[slot].committed)

    @override
    def tokens(self, slot: int) -> Sequence[int]:
        return self._slots[slot].committed


@dataclass
class Slot:
    """One conversation: its committed tokens, and the uncommitted rows after them."""

    committed: list[int] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)  # uncommitted, as they were grown
    parents: list[int] = field(default_factory=list)
    depths: list[int] = field(default_factory=list)
    branches: dict[int, list[int]] = field(default_factory=dict)  # sequence -> rows, oldest first

    def add(self, rows: Rows) -> range:
        """Append rows; returns their numbers."""
        first = len(self.tokens)
        for token, parent in zip(rows.tokens, rows.parents, strict=True):
            self.tokens.append(token)
            self.parents.append(parent)
            self.depths.append(0 if parent < 0 else self.depths[parent] + 1)
        return range(first, len(self.tokens))

    def ending_at(self, row: int) -> int | None:
        """The branch whose last row this is; -1: one that has no row yet."""
        ends = ((branch, path[-1] if path else -1) for branch, path in self.branches.items())
        return next((branch for branch, end in ends if end == row), None)

    def through(self, row: int) -> int | None:
        """The newest branch that holds this row; any for -1."""
        depth = self.depths[row] if row >= 0 else -1
        for branch, path in reversed(self.branches.items()):
            if row < 0 or (depth < len(path) and path[depth] == row):
                return branch
        return None

    def position(self, row: int) -> int:
        """Of a row; the prefix's last token for -1."""
        return len(self.committed) + (self.depths[row] if row >= 0 else -1)

    def missing(self, rows: Iterable[int]) -> list[int]:
        """These rows and those above them that no branch holds, parents first, branch by branch."""
        held = {row for path in self.branches.values() for row in path}
        needed: set[int] = set()
        for row in rows:
            at = row
            while at >= 0 and at not in held and at not in needed:
                needed.add(at)
                at = self.parents[at]
        return list(self._depth_first(needed))

    def _depth_first(self, rows: set[int]) -> Iterator[int]:
        below: dict[int, list[int]] = {}
        for row in sorted(rows, reverse=True):
            parent = self.parents[row]
            below.setdefault(parent if parent in rows else -1, []).append(row)
        stack = below.get(-1, [])
        while stack:
            row = stack.pop()
            yield row
            stack += below.get(row, [])
