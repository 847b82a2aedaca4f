"""One request's chain while it grows token by token, whatever model proposes the tokens."""

from dataclasses import dataclass, field

import numpy as np
from torch import Tensor

from engine.interfaces.drafter import Budget, Context
from engine.speculation.sampling import probabilities
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
        """The chain."""
        return chain(self.tokens, self._probs or None)

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
