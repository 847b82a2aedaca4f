"""Draft-model chain (Leviathan et al., arXiv 2211.17192): a small model proposes token by token."""

from collections.abc import Sequence
from typing import ClassVar

from engine.decode.sampling import probabilities
from engine.decode.tree import DraftTree, chain, single
from engine.follow import Follower
from engine.protocols import Budget, Capability, Context, Outcome, Parts


class Chain:
    """Greedy requests get the draft's likeliest tokens, sampled ones draws from the draft's law."""

    needs: ClassVar[frozenset[Capability]] = frozenset({Capability.DRAFT_MODEL})
    length: ClassVar[Budget] = Budget(depth=4, nodes=4)

    def __init__(self, parts: Parts) -> None:
        """Take the draft model of ``parts``."""
        assert parts.draft_model is not None  # ``needs`` was checked when the engine was built
        self._follower = Follower(parts.draft_model)

    def draft(self, batch: Sequence[Context], budgets: Sequence[Budget]) -> list[DraftTree]:
        """One chain for each context."""
        pairs = zip(batch, budgets, strict=True)
        return [self._one(c, min(b.depth, self._follower.room(c))) for c, b in pairs]

    def observe(self, outcomes: Sequence[Outcome]) -> None:
        """Keep the draft model's cache of accepted tokens."""
        for outcome in outcomes:
            self._follower.settle(outcome)

    def forget(self, request: int, slot: int) -> None:
        """The slot's cache stays: its next request may share the prefix."""

    def _one(self, context: Context, depth: int) -> DraftTree:
        if depth < 1:
            return single(context.ids[-1])
        tokens, parents, laws = [context.ids[-1]], [-1], {}
        logits = self._follower.start(context)
        for node in range(depth):
            if context.sampling.greedy:
                tokens.append(int(logits.argmax()))
            else:
                laws[node] = probabilities(logits, context.sampling)
                tokens.append(context.chance.draw(laws[node]))
            parents.append(node)
            if node + 1 < depth:
                logits = self._follower.grow(context.slot, [node + 1], (tokens, parents))[0]
        return chain(tokens, laws or None)
