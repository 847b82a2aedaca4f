"""What the engine does when the device runs out of memory, step by step.

Shrink the trees, then the number of requests in one pass, then refuse with numbers. None of it
changes an answer: nodes are cut by their place and not by their tokens, which is a shorter draft;
requests never see each other.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from engine.errors import OutOfMemory
from engine.interfaces.target import Scores, Target
from engine.speculation.tree import DraftTree

CALM = 64  # passes without trouble after which twice as much is tried again
PROMPT_CHUNK = 256  # tokens of one prompt per step: the longest that a cancel waits


class ScoreResult(NamedTuple):
    """One request's part of a pass: the tree that was scored, or why no tree could be."""

    tree: DraftTree
    scores: Scores | None
    refused: OutOfMemory | None = None


class MemoryBackoff:
    """Remembers how much fitted; what was given up is tried again after calm passes."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self.nodes: int | None = None  # of one tree, the root included; None: no limit known
        self.together: int | None = None  # requests in one pass
        self.chunk = PROMPT_CHUNK  # prompt tokens in one pass
        self._calm = 0

    def score(self, slots: Sequence[int], trees: Sequence[DraftTree]) -> list[ScoreResult]:
        """One pass, or as many as it takes; one ``ScoreResult`` for each tree."""
        self._calm += 1
        if self._calm >= CALM:
            self._recover()
        if self.together is None:
            return self._within(slots, trees)
        size, found = self.together, list[ScoreResult]()
        for at in range(0, len(slots), size):
            found += self._within(slots[at : at + size], trees[at : at + size])
        return found

    def feed(self, slot: int, tokens: Sequence[int]) -> None:
        """Commit the first tokens of a prompt chunk; raises OutOfMemory when not even one token fits."""
        held = self._target.length(slot)
        while True:
            part = tokens[: self.chunk]
            try:
                self._target.feed(slot, part)
            except OutOfMemory as error:
                self._target.crop(slot, held)
                self._shorten(error, len(part))
            else:
                return

    def drafted_too_much(self, nodes: int) -> None:
        """A draft of ``nodes`` nodes did not fit: the next ones are half as large."""
        self._calm = 0
        self.nodes = max(1, min(nodes, self.nodes or nodes) // 2)

    def _within(self, slots: Sequence[int], trees: Sequence[DraftTree]) -> list[ScoreResult]:
        tried = trees if self.nodes is None else [truncate_tree(tree, self.nodes) for tree in trees]
        try:
            scores = self._target.score(slots, tried)
        except OutOfMemory as error:
            return self._again(slots, tried, error)
        return [ScoreResult(tree, found) for tree, found in zip(tried, scores, strict=True)]

    def _again(
        self, slots: Sequence[int], trees: Sequence[DraftTree], error: OutOfMemory
    ) -> list[ScoreResult]:
        """One step down the ladder, then the same pass."""
        for slot in slots:
            self._target.crop(slot, self._target.length(slot))
        widest = max(len(tree) for tree in trees)
        if widest > 1:
            self.drafted_too_much(widest)
            return self._within(slots, trees)
        if len(slots) > 1:
            self._calm, self.together = 0, len(slots) // 2
            half = self.together
            return self._within(slots[:half], trees[:half]) + self._within(
                slots[half:], trees[half:]
            )
        return [ScoreResult(trees[0], None, _refusal(error))]

    def _shorten(self, error: OutOfMemory, tried: int) -> None:
        if tried > 1:
            self._calm, self.chunk = 0, tried // 2
        else:
            raise _refusal(error) from error

    def _recover(self) -> None:
        self._calm = 0
        self.nodes = None if self.nodes is None or self.nodes >= PROMPT_CHUNK else 2 * self.nodes
        self.together = None if self.together is None or self.together > 8 else 2 * self.together
        self.chunk = min(PROMPT_CHUNK, 2 * self.chunk)


def _refusal(error: OutOfMemory) -> OutOfMemory:
    tried = "trees of 1 node and 1 request in a pass were tried"
    return OutOfMemory(error.needed, error.free, error.total, tried)


def truncate_tree(tree: DraftTree, nodes: int | None) -> DraftTree:
    """The first nodes of a tree; parents stand before children and siblings in draw order.

    Which nodes go follows from their place alone, so what is left of a drawn tree is a drawn tree.
    Rows that early exit ran already are run again: they would hold the memory that is missing.
    """
    if nodes is None or nodes >= len(tree):
        return tree
    parents = tree.parents[:nodes]
    inner = set(parents)
    q = None if tree.q is None else {n: law for n, law in tree.q.items() if n in inner}
    return replace(tree, tokens=tree.tokens[:nodes], parents=parents, q=q, warm=None)
