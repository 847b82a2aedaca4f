"""Acceptance by rank: how likely each child of a node is the one that is taken, computed, not counted.

Sequoia (arXiv 2402.12374, section 3.1) measures it by running trees and counting. Where p and q of
the same context are known, the chance itself can be computed, so one node says what dozens of counted
rounds would. It depends on the drawn children; its mean over draws is the acceptance P[b] of rank b.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor


class RankAcceptance(NamedTuple):
    """Of M nodes, by rank of the child; NaN says that too little was drawn to know."""

    chances: Tensor  # [M, .]: the child of this rank is the one that is taken
    judged: Tensor  # [M, K + 1]: it is looked at, that is all before it are refused


def drawn_ranks(p: Tensor, q: Tensor, drawn: Tensor) -> RankAcceptance:
    """Chance of every rank under Sequoia's rule, for children drawn without replacement.

    p, q [M, V] are the laws of target and draft at M nodes, ``drawn`` [M, K] the children's tokens
    in draw order, -1 where there is none. The chances [M, K + 1] are rank b's given the b - 1
    children before it, so one rank more than was drawn; where the draft has no mass left for a
    further child the chance is 0.

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
        law = offer / mass.clamp(min=torch.finfo(p.dtype).tiny)
        over = (rest - law).clamp_(min=0)
        lost = over.sum(-1, keepdim=True)
        found.append(torch.where(left, judged * (1 - lost[:, 0]), 0 * judged))
        looked.append(judged)
        if rank == drawn.shape[1]:
            break
        known = drawn[:, rank : rank + 1]
        token = known.clamp(min=0)
        share = (rest.gather(1, token) / law.gather(1, token)).nan_to_num(1.0).clamp_(max=1)
        judged = torch.where(known[:, 0] >= 0, judged * (1 - share[:, 0]), torch.nan)
        judged = torch.where(left, judged, 0.0)
        rest = torch.where(lost > 0, over / lost, rest)
        offer = offer.scatter(1, token, torch.where(known >= 0, 0.0, offer.gather(1, token)))
    return RankAcceptance(torch.stack(found, 1).clamp_(min=0), torch.stack(looked, 1))


def chosen_ranks(p: Tensor, chosen: Tensor) -> RankAcceptance:
    """Chance of every rank for candidates that were chosen: the target's own probability of it.

    p [M, V], ``chosen`` [M, K] tokens by rank, -1 where there is none; chances [M, K].
    """
    found = p.gather(1, chosen.clamp(min=0))
    found = torch.where(chosen >= 0, found, torch.nan)
    before = torch.cat((torch.zeros_like(found[:, :1]), found.cumsum(1)), 1)
    return RankAcceptance(found, 1 - before)


def padded(rows: Sequence[Sequence[int]], width: int) -> Tensor:
    """Rows of tokens as one int64 tensor [M, width], -1 behind the end of a row."""
    return torch.tensor([[*row[:width], *[-1] * (width - len(row))] for row in rows])
