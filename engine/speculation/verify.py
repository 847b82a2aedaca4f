"""verify(): which drafted tokens the target accepts. This file defines correctness.

Every emitted token follows the target's own distribution given the tokens before it, whatever the
drafter proposed. There are three rules, one for each way of choosing candidates:

- greedy: the distribution is one-hot, so follow the largest logit;
- chosen candidates (``tree.q`` is None): sample from the target and follow the child with that token
  (SpecExec, arXiv 2406.02532);
- sampled candidates: traversal verification (Weng et al., arXiv 2505.12398), leaves before inner
  nodes. On a chain it equals block verification (Sun et al., arXiv 2403.10444); on a single level it
  equals Sequoia (arXiv 2402.12374, Algorithm 2) or, with replacement, SpecInfer (arXiv 2305.09781).

tests/engine/speculation/test_verify.py proves exactness by enumeration.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from math import isfinite
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from engine.errors import NumericalError
from engine.request import SamplingParams
from engine.speculation.rng import RandomSource
from engine.speculation.sampling import not_finite_error, probabilities
from engine.speculation.tree import DraftTree

Logits = Tensor | NDArray[np.float32]
"""Rows [N, V]; NumPy rows come from targets outside torch, and are faster to read directly."""


class Verdict(NamedTuple):
    """Accepted nodes, the root first, and the target's own next token after the last of them."""

    path: tuple[int, ...]
    bonus: int
    near_tie: bool = (
        False  # other rounding of its logits could change the bonus: its row runs again
    )


def verify(tree: DraftTree, logits: Logits, sampling: SamplingParams, rng: RandomSource) -> Verdict:
    """Verify the tree with the target's logits [N, V]; raises NumericalError if they are not finite.

    Chosen candidates use one random number per emitted token, as plain decoding does: a seed gives
    the same tokens. Only the rows on the accepted path are read.
    """
    if isinstance(logits, np.ndarray):
        if sampling.greedy:
            return _verify_greedy_rows(tree, logits)
        logits = torch.from_numpy(logits)
    if sampling.greedy:
        return _verify_greedy(tree, logits)
    if tree.q is None:
        return _walk(tree, lambda node: rng.draw(probabilities(logits[node], sampling)))
    if tree.is_chain:  # nearly every row of a chain is read: compute all of them at once
        return _verify_sampled(tree, probabilities(logits, sampling).__getitem__, rng)
    return _verify_sampled(tree, lambda node: probabilities(logits[node], sampling), rng)


def verify_or_error(
    tree: DraftTree, logits: Logits, sampling: SamplingParams, rng: RandomSource
) -> Verdict | NumericalError:
    """``verify`` for one request of a batch: bad logits fail this request and not the others."""
    try:
        return verify(tree, logits, sampling, rng)
    except NumericalError as error:
        return error


def _verify_greedy(tree: DraftTree, logits: Tensor) -> Verdict:
    if logits.is_cpu:
        return _verify_greedy_rows(tree, logits.float().numpy(force=True))
    largest, at = logits.max(-1)  # the first one on ties
    values, tokens = torch.stack((largest.double(), at.double())).tolist()  # the only sync
    verdict = _walk(tree, list(map(int, tokens)).__getitem__)
    if not all(isfinite(values[node]) for node in verdict.path):  # max() returns NaN and infinity
        raise not_finite_error()
    return verdict


def _verify_greedy_rows(tree: DraftTree, rows: NDArray[np.float32]) -> Verdict:
    """Follow the largest logits in NumPy, whose argmax is 30 times faster than torch's.

    Plain decoding steps run here. Rows outside the path are not read: with 152,000 tokens a row
    takes 50 us.
    """

    def argmax(node: int) -> int:
        token = int(rows[node].argmax())
        if not isfinite(rows[node, token]):
            raise not_finite_error()
        return token

    return _walk(tree, argmax)


def _walk(tree: DraftTree, target_token: Callable[[int], int]) -> Verdict:
    """Walk down from the root while a child has the target's token.

    ``target_token`` returns the target's next token after a node. It is called once per node of the
    path, in order.
    """
    node, path = 0, [0]
    while True:
        token = target_token(node)
        accepted = next((c for c in tree.children[node] if tree.tokens[c] == token), None)
        if accepted is None:
            return Verdict(tuple(path), token)
        path.append(accepted)
        node = accepted


@dataclass
class _OpenNode:
    """A node on the current path of the traversal, updated as its children are rejected.

    ``weight`` is the probability that the answer passes through the node, given the tokens above it.
    ``p`` [V] is the distribution of the next token if no child tried so far is kept.
    """

    node: int
    weight: float
    untried: list[int]  # children in reverse order, so that pop() returns the next one
    p: Tensor  # empty for a leaf until it is needed
    q: Tensor  # [V], the distribution that the next child was sampled from; empty for a leaf
    tried: list[int] = field(default_factory=list)  # tokens

    def child_weight(self, token: int) -> float:
        """The weight of the child with this token: min(1, weight p / q), without dividing by 0."""
        scaled_p, q = self.weight * float(self.p[token]), float(self.q[token])
        if scaled_p >= q:
            return 1.0 if scaled_p > 0 else 0.0
        return scaled_p / q

    def reject_child(self, proposal: Tensor, *, replacement: bool) -> None:
        """Condition the node on the rejection of the child just tried and its whole sub-tree.

        With S = sum max(weight p - q, 0), the mass that samples from q cannot cover, the weight
        becomes S / (S + 1 - weight). Without replacement q loses the token. With replacement q
        stays the same, and a token that was sampled twice is tried twice.
        """
        excess = (self.weight * self.p - self.q).clamp_(min=0)
        mass = float(excess.sum())
        if mass > 0:  # otherwise p and q were equal up to rounding
            self.p = excess.div_(mass)
        if self.weight < 1:
            self.weight = mass / (mass + 1 - self.weight)
        if self.untried and not replacement:
            self.q = without(proposal.to(self.p), self.tried)


def _verify_sampled(
    tree: DraftTree, target_probs: Callable[[int], Tensor], rng: RandomSource
) -> Verdict:
    """Verify sampled candidates from the leaves up: the first node that is kept ends the path.

    Token-by-token verification ends a path at the first rejected token, even where the target wants
    the whole path more often than it was drafted. Here every node is decided after its sub-tree,
    siblings in sampling order. Given the tokens down to a node, its sub-tree keeps a node with
    probability exactly ``weight``: by induction this holds for its children, and the node covers the
    rest itself (section 4).
    """
    assert tree.q is not None
    path = [_open(tree, 0, 1.0, target_probs)]
    while True:
        here = path[-1]
        if here.untried:
            child = here.untried.pop()
            here.tried.append(tree.tokens[child])
            weight = here.child_weight(tree.tokens[child])
            if weight > 0:
                path.append(_open(tree, child, weight, target_probs))
                continue
        elif len(path) == 1 or rng.accept(here.weight, 1.0):
            p = here.p if tree.children[here.node] else target_probs(here.node)
            return Verdict(tuple(each.node for each in path), rng.draw(p))
        else:
            path.pop()
        path[-1].reject_child(tree.q[path[-1].node], replacement=tree.replaced)


def _open(
    tree: DraftTree, node: int, weight: float, target_probs: Callable[[int], Tensor]
) -> _OpenNode:
    assert tree.q is not None
    if not tree.children[node]:
        return _OpenNode(node, weight, [], torch.empty(0), torch.empty(0))
    p = target_probs(node)
    return _OpenNode(node, weight, [*reversed(tree.children[node])], p, tree.q[node].to(p))


def without(probs: Tensor, tokens: list[int]) -> Tensor:
    """The distribution [V] of the next sample without replacement, after ``tokens``.

    It is uniform over the other tokens once the mass is used up.
    """
    rest = probs.clone()
    rest[tokens] = 0
    mass = rest.sum()
    if mass > 0:
        return rest.div_(mass)
    rest = torch.ones_like(probs)
    rest[tokens] = 0
    return rest / rest.sum().clamp(min=1)
