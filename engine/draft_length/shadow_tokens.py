"""Shadow tokens (DEL, arXiv 2504.05598, section 3.1): what every layer would have drafted, counted.

After a pass the states of all layers are known. One head product over them gives each early exit's
own tokens wherever the context was right. Compared with the model's, they become decayed counts.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from engine.draft_length.tuning import TUNING
from engine.interfaces.drafter import Context
from engine.speculation.sampling import probabilities


@dataclass(frozen=True)
class Counts:
    """Decayed counts of each exit's tokens: matches and misses by confidence.

    ``table`` [E, ``Tuning.columns``] holds, for the exits after layers 1..E: matches by bin, misses by
    bin; then, by rank among the exit's further candidates, how many misses this candidate was, and
    how many misses it was compared with.
    """

    table: np.ndarray

    @classmethod
    def empty(cls, exits: int) -> "Counts":
        """Nothing is known."""
        return cls(np.zeros((exits, TUNING.columns)))

    @property
    def matches(self) -> np.ndarray:
        """By bin of confidence, [E, bins]."""
        return np.asarray(self.table[:, : TUNING.bins])

    @property
    def misses(self) -> np.ndarray:
        """By bin of confidence, [E, bins]."""
        return np.asarray(self.table[:, TUNING.bins : 2 * TUNING.bins])

    @property
    def seen(self) -> np.ndarray:
        """Tokens that each exit was measured on, [E]."""
        return np.asarray(self.table[:, : 2 * TUNING.bins].sum(1))

    @property
    def alpha(self) -> np.ndarray:
        """Acceptance of each exit, [E], with a light prior; 0 where nothing is known."""
        seen = self.seen
        (first, last), weight = TUNING.exit_guess, TUNING.exit_guess_weight
        guess = first + (last - first) / max(len(seen), 1) * np.arange(len(seen))
        shares = (self.matches.sum(1) + weight * guess) / (seen + weight)
        return np.asarray(np.minimum((seen > 0) * shares, TUNING.exit_max_acceptance))

    @property
    def caught(self) -> np.ndarray:
        """Share of an exit's misses that each of its further candidates is, likeliest first, [E, K].

        It falls with the rank; the sum is at most 1.
        """
        weight, guess = TUNING.sibling_weight, np.array(TUNING.sibling_shares)
        found, compared = np.split(self.table[:, 2 * TUNING.bins :], 2, 1)
        shares = (found + weight * guess) / (compared + weight)
        falling = np.minimum.accumulate(shares, 1)
        return np.asarray(falling / np.maximum(falling.sum(1, keepdims=True), 1.0))

    def after(self, fresh: np.ndarray, memory: float) -> "Counts":
        """One round later; the exits without tokens in ``fresh`` [E, columns] do not fade."""
        seen = fresh[:, : 2 * TUNING.bins].sum(1, keepdims=True) > 0
        return Counts(np.where(seen, memory, 1.0) * self.table + fresh)

    def after_exit(self, exit_layer: int, fresh: np.ndarray, memory: float) -> "Counts":
        """One round later in which only this exit was measured, ``fresh`` [columns]."""
        table = self.table.copy()
        table[exit_layer - 1] *= memory
        table[exit_layer - 1] += fresh
        return Counts(table)

    def with_pool(self, pool: "Counts") -> "Counts":
        """One request's counts with those of all requests as prior.

        Few tokens say little, and the best of many noisy exits looks better than it is.
        """
        most = TUNING.exit_pool_weight
        weight = most / np.maximum(pool.seen, most)
        return Counts(self.table + weight[:, None] * pool.table)


@torch.inference_mode()
def shadow_counts(logits: Tensor, judged: Tensor, context: Context) -> np.ndarray:
    """Rows of ``Counts`` for exits' logits [E, n, V] under the target's logits [n, V].

    A chosen candidate matches with the target's probability of it: 0 or 1 when greedy. Of a drawn
    one the expectation over draws counts, so each position weighs one token in either case.
    """
    probs, ranks = probabilities(judged, context.sampling), len(TUNING.sibling_shares)
    if context.draws:
        found = _drawn(logits, probs, context, ranks)
    else:
        found = _chosen(logits.float(), probs, ranks)
    confidence, matched, missed, siblings = (part.flatten(1).double() for part in found)
    place = (confidence * TUNING.bins).long().clamp_(max=TUNING.bins - 1)
    rank = torch.arange(found.siblings.shape[-1], device=logits.device)
    widest = max(TUNING.bins, ranks)
    none = torch.zeros(len(logits), widest, dtype=torch.float64, device=logits.device)
    by_bin, by_rank = none[:, : TUNING.bins], none[:, :ranks]
    parts = (
        by_bin.scatter_add(1, place, matched),
        by_bin.scatter_add(1, place, missed),
        by_rank.scatter_add(1, rank.repeat(len(probs)).expand_as(siblings), siblings),
        missed.sum(1, keepdim=True).expand_as(by_rank),
    )
    return np.asarray(torch.cat(parts, 1).cpu().numpy())


class _Candidates(NamedTuple):
    """Candidates of the exits under the target's probabilities."""

    confidence: Tensor  # [E, n, 1 or V]
    matched: Tensor  # likewise: weight of a candidate that is accepted
    missed: Tensor
    siblings: Tensor  # [E, n, K]: weight of the further candidates where the first one is refused


def _drawn(logits: Tensor, probs: Tensor, context: Context, ranks: int) -> _Candidates:
    """Of a candidate drawn from the exit's distribution.

    alpha is sum min(q, p), the exact acceptance of a draw; a miss is where p is larger.
    """
    offered = probabilities(logits, context.sampling)
    matched = torch.minimum(offered, probs)
    likeliest = offered.topk(min(ranks, probs.shape[-1])).indices
    siblings = (probs - matched).gather(-1, likeliest)
    return _Candidates(offered, matched, offered - matched, siblings)


def _chosen(logits: Tensor, probs: Tensor, ranks: int) -> _Candidates:
    """Of the exit's likeliest candidate."""
    best = logits.topk(min(ranks + 1, probs.shape[-1]))
    confidence = (best.values[..., :1] - logits.logsumexp(-1, keepdim=True)).exp()
    held = probs.expand_as(logits).gather(-1, best.indices).to(confidence)
    return _Candidates(confidence, held[..., :1], 1 - held[..., :1], held[..., 1:])


def bin_of(confidence: float, bins: int) -> int:
    """The bin of a token that was drafted with this probability."""
    return min(int(confidence * bins), bins - 1)
