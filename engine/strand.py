"""Strand: one request's chain while it grows, token by token, whatever model proposes them."""

from dataclasses import dataclass, field

import numpy as np
from torch import Tensor

from engine.decode.sampling import probabilities
from engine.decode.tree import DraftTree, chain
from engine.protocols.drafting import Budget, Context


@dataclass
class Strand:
    """Draws drafted tokens and ends where the budget, a stop token or the budget's rule says so."""

    context: Context
    budget: Budget
    tokens: list[int] = field(default_factory=list)  # the root first
    laws: dict[int, Tensor] = field(default_factory=dict)
    ended: bool = False

    def __post_init__(self) -> None:
        """Start at the newest committed token."""
        self.tokens.append(self.context.ids[-1])
        self.ended = self.budget.depth < 1

    @property
    def newest(self) -> int:
        """The node that was drawn last; 0 is the root."""
        return len(self.tokens) - 1

    def draw(self, logits: Tensor) -> None:
        """Append a token of these logits [V]: the likeliest, or a draw from their law."""
        token, probability = self._next(logits)
        self.tokens.append(token)
        stop = self.budget.stop
        self.ended = (
            self.newest >= self.budget.depth
            or token in self.context.stop_tokens
            or (stop is not None and stop.drawn(probability))
        )

    def feed(self, hidden: Tensor) -> bool:
        """The newest token ran through the draft model, state [C]; False ends the strand."""
        self.ended = self.budget.stop is not None and self.budget.stop.fed(hidden)
        return not self.ended

    def chain(self) -> DraftTree:
        """What was drawn so far."""
        return chain(self.tokens, self.laws or None)

    def _next(self, logits: Tensor) -> tuple[int, float]:
        if not self.context.draws:
            if self.budget.stop is None:  # nobody asks how sure the draft was
                return int(logits.argmax(-1)), 1.0
            row = logits.float().cpu().numpy()  # 40 microseconds less than torch's logsumexp
            token = int(row.argmax())
            return token, 1 / float(np.exp(row - row[token]).sum())
        law = probabilities(logits, self.context.sampling)
        token = self.context.chance.draw(law)
        self.laws[self.newest] = law
        return token, float(law[token])
