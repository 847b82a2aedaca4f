"""Acceptance by rank: how likely each child of a node is the accepted one.

Sequoia (arXiv 2402.12374, section 3.1) measures it by running trees and counting. Where p and q of
the same context are known, the chance itself can be computed, so one node says as much as dozens of
counted rounds. It depends on the drawn children; its mean over draws is the acceptance P[b] of rank b.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from engine.drafting.tuning import TUNING
from engine.statistics.decayed import Decayed


class RankAcceptance(NamedTuple):
    """Of M nodes, by rank of the child; NaN where too few children were drawn to know."""

    chances: Tensor  # [M, .]: the child of this rank is accepted
    judged: Tensor  # [M, K + 1]: it is judged, since all before it are refused


def drawn_ranks(p: Tensor, q: Tensor, drawn: Tensor) -> RankAcceptance:
    """Chance of every rank under Sequoia's rule, for children drawn without replacement.

    p, q [M, V] are the probabilities of target and draft at M nodes, ``drawn`` [M, K] the children's tokens
    in draw order, -1 where there is none. The chances [M, K + 1] are rank b's given the b - 1
    children before it, so there is one rank more than was drawn; it is 0 where the draft has no mass
    left for a further child.

    With R, D the residual and the proposal of Algorithm 2, rank b is judged if all before it were
    rejected, each with probability 1 - min(1, R(s) / D(s)), and a draw from D is accepted with
    probability sum min(R, D) = 1 - sum max(R - D, 0): the mean over s_b is taken exactly.
    """
    rest, offer = p, q.clone()
    judged = torch.ones_like(p[:, 0])
    found, looked = [], []
    for rank in range(drawn.shape[1] + 1):
        mass = offer.sum(-1, keepdim=True)
        left = mass[:, 0] > 0
        share_q = offer / mass.clamp(min=torch.finfo(p.dtype).tiny)
        over = (rest - share_q).clamp_(min=0)
        lost = over.sum(-1, keepdim=True)
        found.append(torch.where(left, judged * (1 - lost[:, 0]), 0 * judged))
        looked.append(judged)
        if rank == drawn.shape[1]:
            break
        known = drawn[:, rank : rank + 1]
        token = known.clamp(min=0)
        share = (rest.gather(1, token) / share_q.gather(1, token)).nan_to_num(1.0).clamp_(max=1)
        judged = torch.where(known[:, 0] >= 0, judged * (1 - share[:, 0]), torch.nan)
        judged = torch.where(left, judged, 0.0)
        rest = torch.where(lost > 0, over / lost, rest)
        offer = offer.scatter(1, token, torch.where(known >= 0, 0.0, offer.gather(1, token)))
    return RankAcceptance(torch.stack(found, 1).clamp_(min=0), torch.stack(looked, 1))


def chosen_ranks(p: Tensor, chosen: Tensor) -> RankAcceptance:
    """Chance of every rank for chosen candidates: the target's own probability of them.

    p [M, V], ``chosen`` [M, K] tokens by rank, -1 where there is none; chances [M, K].
    """
    found = p.gather(1, chosen.clamp(min=0))
    found = torch.where(chosen >= 0, found, torch.nan)
    before = torch.cat((torch.zeros_like(found[:, :1]), found.cumsum(1)), 1)
    return RankAcceptance(found, 1 - before)


def padded(rows: Sequence[Sequence[int]], width: int) -> Tensor:
    """Rows of tokens as one int64 tensor [M, width], -1 after the end of a row."""
    return torch.tensor([[*row[:width], *[-1] * (width - len(row))] for row in rows])


@dataclass
class RankEvidence:
    """Measured acceptance by rank, averaged over nodes."""

    memory: float = 1.0  # weight of the past per node
    ranks: list[Decayed] = field(default_factory=lambda: [Decayed() for _ in range(TUNING.ranks)])

    @classmethod
    def believed(
        cls, shares: Sequence[float], nodes: Sequence[float], memory: float
    ) -> "RankEvidence":
        """Shares by rank, each of which counts for ``nodes`` nodes."""
        pairs = zip(shares, nodes, strict=True)
        return cls(memory, [Decayed(share * count, count) for share, count in pairs])

    def add(self, chances: NDArray[np.float64]) -> None:
        """Measured nodes [M, K]; NaN where a rank was not judged."""
        for row in chances[:, : len(self.ranks)].tolist():
            for rank, chance in zip(self.ranks, row, strict=False):
                if chance == chance:  # noqa: PLR0124 - not NaN
                    rank.add(chance, memory=self.memory)

    @property
    def nodes(self) -> float:
        """Nodes that were measured."""
        return self.ranks[0].trials

    @property
    def measured(self) -> int:
        """Ranks that were measured."""
        return sum(rank.trials > 0 for rank in self.ranks)

    @property
    def shares(self) -> NDArray[np.float64]:
        """The averages, at most 1 in all: the last ranks, which few nodes have measured, lose the excess.

        Ranks without a measurement are 0.
        """
        found = np.array([rank.share() for rank in self.ranks])
        return np.diff(np.minimum(found.cumsum(), 1.0), prepend=0.0)
