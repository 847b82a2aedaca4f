"""The seams: what targets, drafters and length policies promise each other."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import ClassVar, Protocol

from torch import Tensor

from engine.decode.chance import Chance
from engine.decode.tree import DraftTree
from engine.decode.verify import Verdict
from engine.request import SamplingParams


class Capability(StrEnum):
    """What a target offers and a drafter needs; checked once, when an engine is built."""

    TREE = "tree"  # scores trees, not only chains
    LAYERS = "layers"  # runs some of its layers (early exit)
    DRAFT_MODEL = "draft model"  # a second, cheaper target is loaded


@dataclass(frozen=True, slots=True)
class Scores:
    """The target's logits for every node of one tree, [N, V]."""

    logits: Tensor


@dataclass(frozen=True, slots=True)
class Context:
    """Read-only view of a running request for drafters and policies."""

    request: int
    slot: int
    ids: Sequence[int]  # committed tokens; the last one is the tree's root
    sampling: SamplingParams
    chance: Chance


@dataclass(frozen=True, slots=True)
class Budget:
    """How far one draft may go: levels below the root, and nodes in all without the root."""

    depth: int
    nodes: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one draft; seconds are wall time of the whole step it took part in."""

    context: Context
    tree: DraftTree
    verdict: Verdict
    draft_seconds: float
    score_seconds: float


class Target(Protocol):
    """Scores trees behind committed prefixes; one slot holds one sequence."""

    offers: frozenset[Capability]
    context: int
    vocab: int
    layers: int
    parameters: int

    def length(self, slot: int) -> int:
        """Committed tokens whose keys are cached."""
        ...

    def feed(self, slot: int, tokens: Sequence[int]) -> None:
        """Commit tokens unjudged: a prompt chunk."""
        ...

    def score(self, slots: Sequence[int], trees: Sequence[DraftTree]) -> list[Scores]:
        """Hang one tree behind each slot's prefix and run the model over all of them."""
        ...

    def commit(self, slot: int, path: Sequence[int]) -> None:
        """Keep these nodes of the last tree as prefix, forget the others."""
        ...

    def crop(self, slot: int, length: int) -> None:
        """Forget everything behind the first ``length`` tokens."""
        ...


class DraftModel(Target, Protocol):
    """A target that also grows a tree level by level; what draft models are driven by."""

    def grow(self, slot: int, tokens: Sequence[int], parents: Sequence[int]) -> Tensor:
        """Score more rows behind the uncommitted ones, logits [n, V].

        ``parents`` index the uncommitted rows in the order they were grown; -1 is the prefix.
        """
        ...

    def pending(self, slot: int) -> int:
        """Uncommitted rows."""
        ...


class LayeredTarget(Target, Protocol):
    """A target whose first layers can draft for the rest."""

    def shallow(self, slot: int, token: int, layers: int) -> tuple[Tensor, Tensor]:
        """Append one row and run the first ``layers`` on it: (logits [V], hidden [1, C])."""
        ...


class Drafter(Protocol):
    """Proposes one tree per request; never sees the target's scores of this round."""

    needs: ClassVar[frozenset[Capability]]
    length: ClassVar[Budget]  # a sensible fixed length; nodes > depth says that it draws trees

    def draft(self, batch: Sequence[Context], budgets: Sequence[Budget]) -> list[DraftTree]:
        """One tree for each context, within its budget."""
        ...

    def observe(self, outcomes: Sequence[Outcome]) -> None:
        """Learn from what was accepted."""
        ...

    def forget(self, request: int, slot: int) -> None:
        """A request ended; drop what belongs to it."""
        ...


class LengthPolicy(Protocol):
    """Decides how long drafts are."""

    def budgets(self, batch: Sequence[Context], longest: Budget) -> list[Budget]:
        """One budget for each context of one drafter, at most that drafter's ``longest``."""
        ...

    def observe(self, outcomes: Sequence[Outcome]) -> None:
        """Learn from what was accepted and what it cost."""
        ...

    def forget(self, request: int) -> None:
        """A request ended; drop what belongs to it."""
        ...


@dataclass(frozen=True, slots=True)
class Parts:
    """What every drafter and policy is built from."""

    target: Target
    draft_model: DraftModel | None = None
    options: Mapping[str, float] = field(default_factory=dict)
