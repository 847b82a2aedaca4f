"""verify(): which drafted tokens the target accepts. This file is the definition of correctness.

Every token that leaves here follows the target's own law given the tokens before it, whatever
the drafter proposed. Five rules, one for each way in which candidates come about:

- greedy: the law is one-hot, so follow the largest logit;
- chosen candidates (``tree.q`` None): draw from the target, follow the child that carries the
  token (SpecExec, arXiv 2406.02532);
- a drawn chain: block verification (Sun et al., arXiv 2403.10444);
- a drawn tree without replacement: Sequoia (arXiv 2402.12374, Algorithm 2);
- a drawn tree with replacement: SpecInfer (arXiv 2305.09781, multi-step speculative sampling).

Exactness is enumerated in tests/engine/decode/test_verify.py.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from engine.decode.chance import Chance
from engine.decode.sampling import check_finite, not_finite, probabilities
from engine.decode.tree import DraftTree
from engine.request import SamplingParams

Logits = Tensor | NDArray[np.float32]
"""Rows [N, V]; NumPy's where a target outside torch wrote them: the way through torch takes longer."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Accepted nodes, root first, and the target's own next token after the last of them."""

    path: tuple[int, ...]
    bonus: int


def verify(tree: DraftTree, logits: Logits, sampling: SamplingParams, chance: Chance) -> Verdict:
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
    if tree.is_chain and len(tree.q) == tree.drafted:
        return _judge_block(tree, probabilities(logits, sampling), chance)
    return _descend(tree, logits, sampling, chance)


def _follow(tree: DraftTree, logits: Tensor) -> Verdict:
    """The path of largest logits."""
    if logits.is_cpu:
        return _follow_rows(tree, logits.float().numpy(force=True))
    tokens: list[int] = logits.argmax(-1).tolist()
    path = _path(tree, tokens)
    check_finite(logits[path, [tokens[node] for node in path]])  # the largest finds NaN, infinity
    return Verdict(tuple(path), tokens[path[-1]])


def _follow_rows(tree: DraftTree, rows: NDArray[np.float32]) -> Verdict:
    """The same over NumPy's rows, whose argmax is vectorised; torch's is 30 times slower.

    Plain rounds come here, with a cold cache: after a pass every call into torch takes 20 us.
    """
    tokens: list[int] = rows.argmax(-1).tolist()
    path = _path(tree, tokens) if tree.drafted else [0]
    if not all(isfinite(rows[node, tokens[node]]) for node in path):
        raise not_finite()
    return Verdict(tuple(path), tokens[path[-1]])


def _path(tree: DraftTree, tokens: Sequence[int]) -> list[int]:
    """Root and accepted nodes where ``tokens`` [N] are what the target says behind each node."""
    path = [0]
    while (accepted := _child_with(tree, path[-1], tokens[path[-1]])) is not None:
        path.append(accepted)
    return path


def _look_up(tree: DraftTree, logits: Tensor, sampling: SamplingParams, chance: Chance) -> Verdict:
    """Draw from the target's law at every node of the walk, whatever its children are."""
    node, path = 0, [0]
    while True:
        law = probabilities(logits[node], sampling)
        token = chance.draw(law)
        accepted = _child_with(tree, node, token)
        if accepted is None:
            return Verdict(tuple(path), token)
        path.append(accepted)
        node = accepted


def _child_with(tree: DraftTree, node: int, token: int) -> int | None:
    return next((c for c in tree.children[node] if tree.tokens[c] == token), None)


def _judge_block(tree: DraftTree, laws: Tensor, chance: Chance) -> Verdict:
    """Block verification: the whole chain at once accepts more than token by token (section 4).

    With p [N, V] the target's laws, pi_0 = 1 and pi_i = min(1, pi_{i-1} p(x_i) / q(x_i)), the
    prefix x_1 .. x_i is kept, with or without what follows, with probability pi_i. The largest i
    wins that passes h_i = S_i / (S_i + 1 - pi_i), S_i = sum max(pi_i p_{i+1} - q_{i+1}, 0), at the
    chain's end pi_i; the deepest is asked first, so the first to pass is the largest. What
    follows it is drawn from the residual max(pi_i p_{i+1} - q_{i+1}, 0); without the pi it would be wrong.
    A chain may end where its own tokens made it end: pi_i does not depend on what was not drafted.
    """
    assert tree.q is not None
    kept = _kept(tree, laws)
    last = len(tree) - 1
    if last == 0 or chance.accept(kept[last], 1.0):
        return Verdict(tuple(range(last + 1)), chance.draw(laws[last]))
    for node in range(last - 1, -1, -1):
        if kept[node] <= 0:
            continue
        wanted, offered = kept[node] * laws[node], tree.q[node].to(laws)
        excess = float((wanted - offered).clamp_(min=0).sum())
        if node == 0 or chance.accept(excess, excess + 1 - kept[node]):
            return Verdict(tuple(range(node + 1)), chance.draw(residual(wanted, offered)))
    raise AssertionError("the root is always kept")


def _kept(tree: DraftTree, laws: Tensor) -> list[float]:
    """pi of every node of a chain; the root's is 1. Compares before it divides, so never by 0."""
    assert tree.q is not None
    kept = [1.0]
    wanted = laws[range(tree.drafted), tree.tokens[1:]].tolist()
    for node, share in enumerate(wanted):
        reach, offered = kept[-1] * share, float(tree.q[node][tree.tokens[node + 1]])
        kept.append(1.0 if reach >= offered else reach / offered)
    return kept


def _descend(tree: DraftTree, logits: Tensor, sampling: SamplingParams, chance: Chance) -> Verdict:
    """Try the drawn children of every node of the walk in draw order."""
    node, path = 0, [0]
    while True:
        law = probabilities(logits[node], sampling)
        if tree.children[node]:
            accepted, bonus = _try_children(tree, node, law, chance)
        else:
            accepted, bonus = None, chance.draw(law)
        if accepted is None:
            return Verdict(tuple(path), bonus)
        path.append(accepted)
        node = accepted


def _try_children(
    tree: DraftTree, node: int, law: Tensor, chance: Chance
) -> tuple[int | None, int]:
    """Accept a child or draw from what rejection leaves of ``law`` [V].

    Each child is a draw from ``offer``, judged against the residual of the ones before it. Without
    replacement the offer loses every drawn token; with replacement it stays, and a token that
    was drawn twice is tried twice.
    """
    assert tree.q is not None
    rest, offer = law, tree.q[node].to(law)
    tried: list[int] = []
    for child in tree.children[node]:
        if tried:
            rest = residual(rest, offer)
            offer = offer if tree.replaced else without(offer, tried)
        token = tree.tokens[child]
        if chance.accept(float(rest[token]), float(offer[token])):
            return child, token
        tried.append(token)
    return None, chance.draw(residual(rest, offer))


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
