"""Shadow tokens (DEL, arXiv 2504.05598, section 3.1): what every layer would have drafted, counted.

After a pass the states of all layers are known. One head product over them gives each early exit's
own tokens wherever the context was right; compared with the model's, they become decayed counts.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from engine.interfaces.drafter import Context
from engine.speculation.sampling import probabilities

OMEGA, POOL_OMEGA = 0.95, 0.995  # weight of the past per round: of one request, and of all of them
POOL_WEIGHT = 8.0  # most tokens that all requests' counts count for in one of them
CERTAIN = 0.995  # acceptance is never taken for granted
# What is expected of the first exit and of the whole model, linear between, as one token's worth: of
# an exit's first tokens one miss would else say that it never holds, and rounds went by plainly.
GUESS, GUESS_WEIGHT = (0.5, 0.9), 1.0
# Of the tokens that an exit gets wrong, the share that its next likeliest ones are, as so many refusals'
# worth: of pocket's exits measured over chat and word problems.
BESIDE = (0.25, 0.13, 0.08, 0.05, 0.04, 0.03, 0.02)
BESIDE_WEIGHT = 4.0
BINS = 6  # of confidence, each with its own acceptance
COLUMNS = 2 * BINS + 2 + 2 * len(BESIDE)
BIN_WEIGHT = 2.0  # tokens that the confidence itself counts for, as a guess of a bin's acceptance


@dataclass(frozen=True)
class Counts:
    """Decayed counts of each exit's tokens: matches and misses by confidence, sums of confidence.

    ``table`` [E, COLUMNS] holds, for the exits after layers 1..E, matches by bin, misses by bin,
    confidence of matches, confidence of misses; and of the misses for which it is known, by rank among
    the exit's other candidates, how many that one was, and how many it was looked for in.
    """

    table: np.ndarray

    @classmethod
    def empty(cls, exits: int) -> "Counts":
        """Nothing is known."""
        return cls(np.zeros((exits, COLUMNS)))

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
        sure = _share(self.table[:, 2 * BINS], self.matches.sum(1), 1.0)
        unsure = _share(self.table[:, 2 * BINS + 1], self.misses.sum(1), 0.0)
        return np.asarray((sure + unsure) / 2)

    @property
    def caught(self) -> np.ndarray:
        """Share of an exit's misses that each of its further candidates is, likeliest first, [E, K].

        It falls with the rank, and is all misses at most.
        """
        found, sought = np.split(self.table[:, 2 * BINS + 2 :], 2, 1)
        shares = (found + BESIDE_WEIGHT * np.array(BESIDE)) / (sought + BESIDE_WEIGHT)
        falling = np.minimum.accumulate(shares, 1)
        return np.asarray(falling / np.maximum(falling.sum(1, keepdims=True), 1.0))

    def after(self, fresh: np.ndarray, memory: float) -> "Counts":
        """One round later; rows of ``fresh`` [E, COLUMNS] without tokens do not fade."""
        heard = fresh[:, : 2 * BINS].sum(1, keepdims=True) > 0
        return Counts(np.where(heard, memory, 1.0) * self.table + fresh)

    def after_exit(self, exit_layer: int, fresh: np.ndarray, memory: float) -> "Counts":
        """One round later in which this exit alone was heard, ``fresh`` [COLUMNS]."""
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
    told = _drawn(logits, law, context) if context.draws else _chosen(logits.float(), law)
    confidence, matched, missed, beside = (part.flatten(1).double() for part in told)
    place = (confidence * BINS).long().clamp_(max=BINS - 1)
    rank = torch.arange(told.beside.shape[-1], device=logits.device)
    none = torch.zeros(
        len(logits), max(BINS, len(BESIDE)), dtype=torch.float64, device=logits.device
    )
    by_bin, by_rank = none[:, :BINS], none[:, : len(BESIDE)]
    parts = (
        by_bin.scatter_add(1, place, matched),
        by_bin.scatter_add(1, place, missed),
        (confidence * matched).sum(1, keepdim=True),
        (confidence * missed).sum(1, keepdim=True),
        by_rank.scatter_add(1, rank.repeat(len(law)).expand_as(beside), beside),
        missed.sum(1, keepdim=True).expand_as(by_rank),
    )
    return np.asarray(torch.cat(parts, 1).cpu().numpy())


class _Told(NamedTuple):
    """What exits' rows say under the target's law."""

    confidence: Tensor  # [E, n, 1 or V]
    matched: Tensor  # likewise: weight of a candidate that holds
    missed: Tensor
    beside: Tensor  # [E, n, K]: weight of the further candidates where the first one does not hold


def _drawn(logits: Tensor, law: Tensor, context: Context) -> _Told:
    """Of a candidate drawn from the exit's law; what it misses is where the target's is larger."""
    offered = probabilities(logits, context.sampling)
    matched = torch.minimum(offered, law)
    likeliest = offered.topk(min(len(BESIDE), law.shape[-1])).indices
    beside = (law - matched).gather(-1, likeliest)
    return _Told(offered, matched, offered - matched, beside)


def _chosen(logits: Tensor, law: Tensor) -> _Told:
    """Of the exit's likeliest candidate."""
    best = logits.topk(min(len(BESIDE) + 1, law.shape[-1]))
    confidence = (best.values[..., :1] - logits.logsumexp(-1, keepdim=True)).exp()
    held = law.expand_as(logits).gather(-1, best.indices).to(confidence)
    return _Told(confidence, held[..., :1], 1 - held[..., :1], held[..., 1:])


def bin_of(confidence: float) -> int:
    """The bin of a token that was drafted with this probability."""
    return min(int(confidence * BINS), BINS - 1)


def _share(part: np.ndarray, whole: np.ndarray, unknown: float) -> np.ndarray:
    """part / whole, [E]; ``unknown`` where there is nothing to divide by."""
    return np.where(whole > 0, part / np.where(whole > 0, whole, 1.0), unknown)
