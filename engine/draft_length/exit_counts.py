"""How often each early exit is right: shadow tokens (DEL, arXiv 2504.05598, section 3.1), counted.

After a pass the states of all layers are known. One head product over them gives each early exit's
own tokens wherever the context was right. Compared with the model's, they become decayed counts.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from engine.draft_length.tuning import TUNING
from engine.interfaces.drafter import Context
from engine.speculation.sampling import probabilities
from engine.speculation.tree import DraftTree

RANKS = len(TUNING.sibling_shares)


@dataclass(frozen=True)
class ExitCounts:
    """Decayed counts of each exit's tokens, ``table`` [E, 2, bins + ranks], for exits after layers 1..E.

    In front, matches and misses by the confidence that a token was drafted with; after them, by rank
    among the exit's further candidates, how many misses this one was, and was compared with.
    """

    table: np.ndarray

    @classmethod
    def empty(cls, exits: int) -> "ExitCounts":
        """Nothing is known."""
        return cls(np.zeros((exits, 2, TUNING.bins + RANKS)))

    @cached_property
    def seen(self) -> np.ndarray:
        """Tokens that each exit was measured on, [E]."""
        return np.asarray(self.table[:, :, : TUNING.bins].sum((1, 2)))

    @cached_property
    def alpha(self) -> np.ndarray:
        """Acceptance of each exit, [E]; 0 where nothing is known.

        A light prior rises with the layers, or one early miss would end the use of an exit.
        """
        (first, last), weight = TUNING.exit_guess, TUNING.guess_weight
        guess = first + (last - first) / max(len(self.seen), 1) * np.arange(len(self.seen))
        matches = self.table[:, 0, : TUNING.bins].sum(1)
        shares = (matches + weight * guess) / (self.seen + weight)
        return np.asarray(np.minimum((self.seen > 0) * shares, TUNING.max_acceptance))

    def caught(self, exit_layer: int) -> list[float]:
        """Share of an exit's misses that each of its further candidates is: it falls, at most 1 in all."""
        found, compared = self.table[exit_layer - 1, :, TUNING.bins :]
        weight, guess = TUNING.guess_weight, np.array(TUNING.sibling_shares)
        falling = np.minimum.accumulate((found + weight * guess) / (compared + weight))
        shares: list[float] = (falling / max(falling.sum(), 1.0)).tolist()
        return shares

    def acceptance(self, exit_layer: int, probability: float) -> float:
        """The chance that a token of this exit is accepted that was drafted with this probability."""
        matches, misses = self.table[exit_layer - 1, :, bin_of(probability)]
        weight = TUNING.guess_weight
        return float((matches + weight * probability) / (matches + misses + weight))

    def after(self, fresh: np.ndarray, memory: float) -> "ExitCounts":
        """With ``fresh`` counts; exits without tokens in it do not fade."""
        seen = fresh.any((1, 2), keepdims=True)
        return ExitCounts(np.where(seen, memory, 1.0) * self.table + fresh)

    def with_pool(self, pool: "ExitCounts") -> "ExitCounts":
        """One request's counts with those of all requests as prior.

        Few tokens say little, and the best of many noisy exits looks better than it is.
        """
        weight = TUNING.pool_weight / np.maximum(pool.seen, TUNING.pool_weight)
        return ExitCounts(self.table + weight[:, None, None] * pool.table)


@torch.inference_mode()
def shadow_counts(logits: Tensor, judged: Tensor, context: Context) -> np.ndarray:
    """Counts [E, 2, bins + ranks] of exits' logits [E, n, V] under the target's logits [n, V].

    A chosen token matches with the target's probability of it: 0 or 1 when greedy. Of a drawn one
    the expectation over draws counts, so each position weighs one token in either case.
    """
    probs = probabilities(judged, context.sampling)
    ranks = min(RANKS, probs.shape[-1] - 1)
    if context.draws:  # sum min(q, p) is the exact acceptance of a draw
        confidence = probabilities(logits, context.sampling)
        matched = torch.minimum(confidence, probs)
        missed = confidence - matched
        siblings = (probs - matched).gather(-1, confidence.topk(ranks).indices)
    else:
        best = logits.float().topk(ranks + 1)
        confidence = (best.values[..., :1] - logits.float().logsumexp(-1, keepdim=True)).exp()
        held = probs.expand_as(logits).gather(-1, best.indices).to(confidence)
        matched, missed, siblings = held[..., :1], 1 - held[..., :1], held[..., 1:]
    confidence, matched, missed = (
        part.flatten(1).double() for part in (confidence, matched, missed)
    )
    place = (confidence * TUNING.bins).long().clamp_(max=TUNING.bins - 1)
    none = torch.zeros(len(logits), TUNING.bins, dtype=torch.float64, device=logits.device)
    by_bin = torch.stack([none.scatter_add(1, place, part) for part in (matched, missed)], 1)
    by_rank = torch.zeros(len(logits), 2, RANKS, dtype=torch.float64, device=logits.device)
    by_rank[:, 0, :ranks] = siblings.double().sum(1)
    by_rank[:, 1, :ranks] = missed.sum(1, keepdim=True)
    return np.asarray(torch.cat((by_bin, by_rank), -1).cpu().numpy())


def chain_counts(confidence: Sequence[float], tree: DraftTree, path: Sequence[int]) -> np.ndarray:
    """Counts [2, bins + ranks] of a chain whose first tokens were right, and of its siblings."""
    fresh = np.zeros((2, TUNING.bins + RANKS))
    accepted = sum(0 < node <= len(confidence) for node in path)
    for place, probability in enumerate(confidence[: accepted + 1]):
        fresh[int(place >= accepted), bin_of(probability)] += 1.0
    if accepted < len(confidence):
        siblings = [node for node in tree.children[accepted] if node > len(confidence)]
        compared = slice(TUNING.bins, TUNING.bins + len(siblings))
        fresh[0, compared], fresh[1, compared] = [node == path[-1] for node in siblings], 1.0
    return fresh


def bin_of(confidence: float) -> int:
    """The bin of a token that was drafted with this probability."""
    return min(int(confidence * TUNING.bins), TUNING.bins - 1)
