"""Early-exit self-speculation (LayerSkip, arXiv 2404.16710): the first layers draft for the rest."""

from collections.abc import Sequence
from typing import ClassVar, cast

import torch

from engine.decode.sampling import probabilities
from engine.decode.tree import DraftTree, Warm, chain, single
from engine.protocols import Budget, Capability, Context, LayeredTarget, Outcome, Parts


class EarlyExit:
    """Chains from layers 0..E-1 of the target itself, sharing its cache.

    The early layers of a drafted row run once: their keys are in the target's own cache and the
    state after layer E travels in ``DraftTree.warm``, so verification resumes there.
    """

    needs: ClassVar[frozenset[Capability]] = frozenset({Capability.LAYERS})
    length: ClassVar[Budget] = Budget(depth=3, nodes=3)

    def __init__(self, parts: Parts) -> None:
        """``exit_layer`` of the options is E; by default a quarter of the layers."""
        self._target = cast("LayeredTarget", parts.target)
        default = max(1, self._target.layers // 4)
        self._exit = int(parts.options.get("exit_layer", default))

    def draft(self, batch: Sequence[Context], budgets: Sequence[Budget]) -> list[DraftTree]:
        """One chain for each context."""
        return [self._one(c, b.depth) for c, b in zip(batch, budgets, strict=True)]

    def observe(self, outcomes: Sequence[Outcome]) -> None:
        """The exit is fixed; nothing to learn."""

    def forget(self, request: int, slot: int) -> None:
        """All state lives in the target's cache."""

    def _one(self, context: Context, depth: int) -> DraftTree:
        if depth < 1:
            return single(context.ids[-1])
        self._target.crop(context.slot, self._target.length(context.slot))
        tokens, laws, states = [context.ids[-1]], {}, []
        for node in range(depth):
            logits, hidden = self._target.shallow(context.slot, tokens[-1], self._exit)
            states.append(hidden)
            if context.sampling.greedy:
                tokens.append(int(logits.argmax()))
            else:
                laws[node] = probabilities(logits, context.sampling)
                tokens.append(context.chance.draw(laws[node]))
        tree = chain(tokens, laws or None)
        return DraftTree(tree.tokens, tree.parents, tree.q, Warm(self._exit, torch.cat(states)))
