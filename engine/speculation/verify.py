"""verify(): which drafted tokens the target accepts. This file is the definition of correctness.

Every token that leaves here follows the target's own law given the tokens before it, whatever
the drafter proposed. Three rules, one for each way in which candidates come about:

- greedy: the law is one-hot, so follow the largest logit;
- chosen candidates (``tree.q`` None): draw from the target, follow the child that carries the
  token (SpecExec, arXiv 2406.02532);
- drawn candidates: traversal verification (Weng et al., arXiv 2505.12398), leaves before inner
  nodes. A chain's is block verification (Sun et al., arXiv 2403.10444), a single level's that of
  Sequoia (arXiv 2402.12374, Algorithm 2), or with replacement SpecInfer's (arXiv 2305.09781).

Exactness is enumerated in tests/engine/speculation/test_verify.py.
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
from engine.speculation.sampling import not_finite, probabilities
from engine.speculation.tree import DraftTree

Logits = Tensor | NDArray[np.float32]
"""Rows [N, V]; NumPy's where a target outside torch wrote them: the way through torch takes longer."""


class Verdict(NamedTuple):
    """Accepted nodes, root first, and the target's own next token after the last of them."""

    path: tuple[int, ...]
    bonus: int


def verify(
    tree: DraftTree, logits: Logits, sampling: SamplingParams, chance: RandomSource
) -> Verdict:
    """Judge the tree with the target's logits [N, V]; raises NumericalError if they are not finite.

    Chosen candidates take one draw per emitted token, as plain decoding does, so a seed gives the
    same tokens; the laws of rows that the walk does not reach are not computed.
    """
    if isinstance(logits, np.ndarray):
        if sampling.greedy:
            return _follow_rows(tree, logits)
        logits = torch.from_numpy(logits)
    if sampling.greedy:
        return _follow(tree, logits)
    if tree.q is None:
        return _look_up(tree, logits, sampling, chance)
    if tree.is_chain:  # hardly a row of it that is not asked: all laws at once
        return _traverse(tree, probabilities(logits, sampling).__getitem__, chance)
    return _traverse(tree, lambda node: probabilities(logits[node], sampling), chance)


def judge(
    tree: DraftTree, logits: Logits, sampling: SamplingParams, chance: RandomSource
) -> Verdict | NumericalError:
    """``verify`` of one of several requests: what is wrong with its logits is no matter of the others'."""
    try:
        return verify(tree, logits, sampling, chance)
    except NumericalError as error:
        return error


def _follow(tree: DraftTree, logits: Tensor) -> Verdict:
    """The path of largest logits."""
    if logits.is_cpu:
        return _follow_rows(tree, logits.float().numpy(force=True))
    largest, at = logits.max(-1)  # of equals the first
    values, found = torch.stack((largest.double(), at.double())).tolist()  # the only wait
    verdict = _walk(tree, list(map(int, found)).__getitem__)
    if not all(isfinite(values[node]) for node in verdict.path):  # the largest finds NaN, infinity
        raise not_finite()
    return verdict


def _follow_rows(tree: DraftTree, rows: NDArray[np.float32]) -> Verdict:
    """The same over NumPy's rows, whose argmax is vectorised; torch's is 30 times slower.

    Plain rounds come here, with a cold cache: after a pass every call into torch takes 20 us. Rows
    that the walk does not reach are not looked at: each takes 50 us of 152,000 tokens.
    """

    def likeliest(node: int) -> int:
        token = int(rows[node].argmax())
        if not isfinite(rows[node, token]):
            raise not_finite()
        return token

    return _walk(tree, likeliest)


def _look_up(
    tree: DraftTree, logits: Tensor, sampling: SamplingParams, chance: RandomSource
) -> Verdict:
    """Draw from the target's law at every node of the walk, whatever its children are."""

    def drawn(node: int) -> int:
        law = probabilities(logits[node], sampling)
        return chance.draw(law)

    return _walk(tree, drawn)


def _walk(tree: DraftTree, said: Callable[[int], int]) -> Verdict:
    """Down from the root along what the target says behind each node, asked once and in order."""
    node, path = 0, [0]
    while True:
        token = said(node)
        accepted = _child_with(tree, node, token)
        if accepted is None:
            return Verdict(tuple(path), token)
        path.append(accepted)
        node = accepted


def _child_with(tree: DraftTree, node: int, token: int) -> int | None:
    return next((c for c in tree.children[node] if tree.tokens[c] == token), None)


@dataclass
class _Standing:
    """A node of the traversal, and what is left of it once children were refused.

    ``weight`` is the chance that the answer goes through the node, given the tokens on the way to
    it; ``law`` [V] what follows the node then, if none of the children tried so far does.
    """

    node: int
    weight: float
    untried: list[int]  # children, the next one last
    law: Tensor  # of a leaf empty until it is needed
    offer: Tensor  # [V], what the next child was drawn from; of a leaf empty
    tried: list[int] = field(default_factory=list)  # tokens

    def share(self, token: int) -> float:
        """The weight of the child that carries this token: min(1, weight p / q), never by 0."""
        wanted, offered = self.weight * float(self.law[token]), float(self.offer[token])
        if wanted >= offered:
            return 1.0 if wanted > 0 else 0.0
        return wanted / offered

    def refuse(self, drawn_from: Tensor, *, replaced: bool) -> None:
        """The child that was just tried is not part of the answer, nor is anything below it.

        With S = sum max(weight p - q, 0), the mass that no draw from q can stand for, the weight
        becomes S / (S + 1 - weight). Without replacement the offer loses the token; with it the
        offer stays, and a token that was drawn twice is tried twice.
        """
        excess = (self.weight * self.law - self.offer).clamp_(min=0)
        mass = float(excess.sum())
        if mass > 0:  # else p and q were equal but for rounding
            self.law = excess.div_(mass)
        if self.weight < 1:
            self.weight = mass / (mass + 1 - self.weight)
        if self.untried and not replaced:
            self.offer = without(drawn_from.to(self.law), self.tried)


def _traverse(tree: DraftTree, law: Callable[[int], Tensor], chance: RandomSource) -> Verdict:
    """Judge drawn candidates from the leaves up: the first node to be kept ends the path.

    Token by token a path ends at the first refused token, although its later tokens may make up for
    it: that the target wants the whole path more often than it was drafted. So every node is asked
    after all that is below it, siblings in draw order, whether the path ends with it. Given the
    tokens down to a node, something in its sub-tree is kept exactly with the node's weight: by
    induction, since it is so of its children, and what the children leave is its own (section 4).
    """
    assert tree.q is not None
    path = [_opened(tree, 0, 1.0, law)]
    while True:
        here = path[-1]
        if here.untried:
            child = here.untried.pop()
            here.tried.append(tree.tokens[child])
            weight = here.share(tree.tokens[child])
            if weight > 0:
                path.append(_opened(tree, child, weight, law))
                continue
        elif len(path) == 1 or chance.accept(here.weight, 1.0):
            rest = here.law if tree.children[here.node] else law(here.node)
            return Verdict(tuple(standing.node for standing in path), chance.draw(rest))
        else:
            path.pop()
        path[-1].refuse(tree.q[path[-1].node], replaced=tree.replaced)


def _opened(tree: DraftTree, node: int, weight: float, law: Callable[[int], Tensor]) -> _Standing:
    assert tree.q is not None
    if not tree.children[node]:
        return _Standing(node, weight, [], torch.empty(0), torch.empty(0))
    own = law(node)
    return _Standing(node, weight, [*reversed(tree.children[node])], own, tree.q[node].to(own))


def residual(wanted: Tensor, offered: Tensor) -> Tensor:
    """normalise(max(p - q, 0)), [V]; p itself when rounding left nothing."""
    rest = (wanted - offered).clamp_(min=0)
    mass = rest.sum()
    return rest.div_(mass) if mass > 0 else wanted


def without(law: Tensor, drawn: list[int]) -> Tensor:
    """The law of the next draw without replacement, [V].

    Where the mass is exhausted the next draw is uniform over what was not drawn yet.
    """
    rest = law.clone()
    rest[drawn] = 0
    mass = rest.sum()
    if mass > 0:
        return rest.div_(mass)
    rest = torch.ones_like(law)
    rest[drawn] = 0
    return rest / rest.sum().clamp(min=1)
