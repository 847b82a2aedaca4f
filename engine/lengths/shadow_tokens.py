"""Shadow tokens (DEL, arXiv 2504.05598, section 3.1): what every layer would have drafted, counted.

After a pass the states of all layers are known. One head product over them gives each early exit's
own tokens wherever the context was right; compared with the model's, they become decayed counts.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from engine.decode.sampling import probabilities
from engine.protocols.drafting import Context

OMEGA, POOL_OMEGA = 0.95, 0.995  # weight of the past per round: of one request, and of all of them
POOL_WEIGHT = 8.0  # most tokens that all requests' counts count for in one of them
CERTAIN = 0.995  # acceptance is never taken for granted
# What is expected of the first exit and of the whole model, linear between, as one token's worth: of
# an exit's first tokens one miss would else say that it never holds, and rounds went by plainly.
GUESS, GUESS_WEIGHT = (0.5, 0.9), 1.0
BINS = 6  # of confidence, each with its own acceptance
BIN_WEIGHT = 2.0  # tokens that the confidence itself counts for, as a guess of a bin's acceptance


@dataclass(frozen=True)
class Counts:
    """Decayed counts of each exit's tokens: matches and misses by confidence, sums of confidence.

    ``table`` [E, 2 BINS + 2] holds, for the exits after layers 1..E, matches by bin, misses by
    bin, confidence of matches, confidence of misses.
    """

    table: np.ndarray

    @classmethod
    def empty(cls, exits: int) -> "Counts":
        """Nothing is known."""
        return cls(np.zeros((exits, 2 * BINS + 2)))

    @property
    def matches(self) -> np.ndarray:
        """By bin of confidence, [E, BINS]."""
        return np.asarray(self.table[:, :BINS])

    @property
    def misses(self) -> np.ndarray:
        """By bin of confidence, [E, BINS]."""
        return np.asarray(self.table[:, BINS : 2 * BINS])

    @property
    def seen(self) -> np.ndarray:
        """Tokens that each exit's numbers rest on, [E]."""
        return np.asarray(self.table[:, : 2 * BINS].sum(1))

    @property
    def alpha(self) -> np.ndarray:
        """Acceptance of each exit, [E], with a guess that counts for little; 0 where nothing is known."""
        seen, (first, last) = self.seen, GUESS
        guess = first + (last - first) / max(len(seen), 1) * np.arange(len(seen))
        hits = self.matches.sum(1) + GUESS_WEIGHT * guess
        return np.asarray(np.minimum((seen > 0) * hits / (seen + GUESS_WEIGHT), CERTAIN))

    @property
    def tau(self) -> np.ndarray:
        """The paper's thresholds, [E]: half way between the mean confidence of matches and misses.

        Without misses half the confidence of matches; without matches half way from misses to 1.
        """
        sure = _share(self.table[:, -2], self.matches.sum(1), 1.0)
        unsure = _share(self.table[:, -1], self.misses.sum(1), 0.0)
        return np.asarray((sure + unsure) / 2)

    def after(self, fresh: np.ndarray, memory: float) -> "Counts":
        """One round later; rows of ``fresh`` [E, 2 BINS + 2] without tokens do not fade."""
        heard = fresh[:, : 2 * BINS].sum(1, keepdims=True) > 0
        return Counts(np.where(heard, memory, 1.0) * self.table + fresh)

    def after_exit(self, exit_layer: int, fresh: np.ndarray, memory: float) -> "Counts":
        """One round later in which this exit alone was heard, ``fresh`` [2 BINS + 2]."""
        table = self.table.copy()
        table[exit_layer - 1] *= memory
        table[exit_layer - 1] += fresh
        return Counts(table)

    def leaning(self, pool: "Counts") -> "Counts":
        """One request's counts with those of all: a few tokens of one say little.

        Of many noisy exits the best looks better than it is, and the choice would follow the noise.
        """
        weight = POOL_WEIGHT / np.maximum(pool.seen, POOL_WEIGHT)
        return Counts(self.table + weight[:, None] * pool.table)


@torch.inference_mode()
def shadow_counts(logits: Tensor, judged: Tensor, context: Context) -> np.ndarray:
    """Rows of ``Counts`` for exits' logits [E, n, V] under the target's logits [n, V].

    A chosen candidate matches with the target's probability of it: 0 or 1 when greedy. Of a drawn
    one the expectation over draws counts, so each column weighs one token in either case.
    """
    law = probabilities(judged, context.sampling)
    if context.draws:
        confidence = probabilities(logits, context.sampling)
        matched = torch.minimum(confidence, law)
        missed = confidence - matched
    else:
        logits = logits.float()
        best = logits.max(-1, keepdim=True)
        confidence = (best.values - logits.logsumexp(-1, keepdim=True)).exp()
        matched = law.expand_as(logits).gather(-1, best.indices).to(confidence)
        missed = 1 - matched
    confidence, matched, missed = (t.flatten(1).double() for t in (confidence, matched, missed))
    place = (confidence * BINS).long().clamp_(max=BINS - 1)
    empty = torch.zeros(len(logits), BINS, dtype=torch.float64, device=logits.device)
    parts = (
        empty.scatter_add(1, place, matched),
        empty.scatter_add(1, place, missed),
        (confidence * matched).sum(1, keepdim=True),
        (confidence * missed).sum(1, keepdim=True),
    )
    return np.asarray(torch.cat(parts, 1).cpu().numpy())


def bin_of(confidence: float) -> int:
    """The bin of a token that was drafted with this probability."""
    return min(int(confidence * BINS), BINS - 1)


def _share(part: np.ndarray, whole: np.ndarray, unknown: float) -> np.ndarray:
    """part / whole, [E]; ``unknown`` where there is nothing to divide by."""
    return np.where(whole > 0, part / np.where(whole > 0, whole, 1.0), unknown)
