"""One request's chain while it grows token by token, whatever model proposes the tokens."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from engine.interfaces.drafter import Budget, Context
from engine.speculation.sampling import probabilities
from engine.speculation.top_k import top_k
from engine.speculation.tree import DraftTree, chain


@dataclass
class ChainDraft:
    """Draws tokens; ends by the budget's length, a stop token or the budget's stop rule."""

    context: Context
    budget: Budget
    tokens: list[int] = field(default_factory=list)  # the root first
    ended: bool = False
    _probs: dict[int, Tensor] = field(
        default_factory=dict
    )  # node -> [V], what its child was drawn from
    _rows: list[Tensor] = field(default_factory=list)  # [V], logits that tokens were chosen from

    def __post_init__(self) -> None:
        """Start at the newest committed token."""
        self.tokens.append(self.context.ids[-1])
        self.ended = self.budget.depth < 1

    @property
    def newest(self) -> int:
        """The node that was drawn last; 0 is the root."""
        return len(self.tokens) - 1

    def draw(self, logits: Tensor) -> None:
        """Append a token of these logits [V]: the likeliest, or a sample."""
        token, probability = self._next(logits)
        self.tokens.append(token)
        if self.budget.siblings is not None and not self.context.draws:
            self._rows.append(logits)
        stop = self.budget.stop
        self.ended = (
            self.newest >= self.budget.depth
            or token in self.context.stop_tokens
            or (stop is not None and stop.drawn(probability))
        )

    def feed(self, hidden: Tensor) -> bool:
        """The newest token ran through the draft model, state [C]; False ends the chain."""
        self.ended = self.budget.stop is not None and self.budget.stop.fed(hidden)
        return not self.ended

    def tree(self) -> DraftTree:
        """The chain, followed by the siblings of its tokens."""
        tree = chain(self.tokens, self._probs or None)
        if self.budget.siblings is None or self.newest == 0:
            return tree
        counts = self.budget.siblings.beside(self.newest)
        siblings = self._drawn(counts) if self.context.draws else self._chosen(counts)
        tokens = tuple(token for found in siblings for token in found)
        parents = tuple(parent for parent, found in enumerate(siblings) for _ in found)
        return replace(tree, tokens=tree.tokens + tokens, parents=tree.parents + parents)

    def _chosen(self, counts: Sequence[int]) -> list[list[int]]:
        """After each node: the likeliest tokens except the chain's own."""
        most = min(max(counts) + 1, len(self._rows[0]))
        if most < 2:
            return []
        ranked = top_k(torch.stack(self._rows), most).indices.tolist()
        pairs = zip(ranked, self.tokens[1:], counts, strict=True)
        return [[t for t in row if t != own][:count] for row, own, count in pairs]

    def _drawn(self, counts: Sequence[int]) -> list[list[int]]:
        """After each node: the next draws without replacement; fewer where the mass runs out."""
        found: list[list[int]] = []
        for parent, count in enumerate(counts):
            rest = self._probs[parent].clone()
            rest[self.tokens[parent + 1]] = 0
            drawn = self.context.rng.draw_distinct(rest, count) if count and rest.any() else []
            found.append(drawn)
        return found

    def _next(self, logits: Tensor) -> tuple[int, float]:
        """A token and its probability."""
        if not self.context.draws:
            if self.budget.stop is None:  # the probability is not used
                return int(logits.argmax(-1)), 1.0
            row = logits.float().cpu().numpy()  # 40 microseconds less than torch's logsumexp
            token = int(row.argmax())
            return token, 1 / float(np.exp(row - row[token]).sum())
        probs = probabilities(logits, self.context.sampling)
        token = self.context.rng.draw(probs)
        self._probs[self.newest] = probs
        return token, float(probs[token])
