"""verify(): which drafted tokens the target accepts. This file is the definition of correctness.

Every token that leaves here follows the target's own law given the tokens before it, whatever
the drafter proposed (algorithms: Leviathan et al. 2211.17192; Sequoia 2402.12374 Alg. 2; SpecExec
2406.02532; exactness is enumerated in tests/engine/decode/test_verify.py).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from engine.decode.chance import Chance
from engine.decode.sampling import probabilities
from engine.decode.tree import DraftTree
from engine.errors import NumericalError
from engine.request import SamplingParams


@dataclass(frozen=True, slots=True)
class Verdict:
    """Accepted nodes, root first, and the target's own next token after the last of them."""

    path: tuple[int, ...]
    bonus: int


def verify(tree: DraftTree, logits: Tensor, sampling: SamplingParams, chance: Chance) -> Verdict:
    """Walk the tree with the target's logits [N, V]; a row is used only if the walk reaches it.

    Deterministic candidates (``tree.q`` None) are a lookup: draw from the target and follow the
    child that carries the token. Sampled candidates are tried in draw order against the residual,
    each removed from the proposal once rejected (Sequoia Alg. 2). At temperature 0 the law is
    one-hot and both mean: follow the largest logit.
    """
    if sampling.greedy:
        return _walk(tree, _greedy_tokens(logits))
    node, path = 0, [0]
    while True:
        law = probabilities(logits[node], sampling)
        if tree.q is None or not tree.children[node]:
            bonus = chance.draw(law)
            accepted = _child_with(tree, node, bonus)
        else:
            accepted, bonus = _try_children(tree, node, law, chance)
        if accepted is None:
            return Verdict(tuple(path), bonus)
        path.append(accepted)
        node = accepted


def _greedy_tokens(logits: Tensor) -> list[int]:
    best = logits.max(-1)
    if not bool(torch.isfinite(best.values).all()):
        raise NumericalError("the model's logits are not finite; its weights may be damaged")
    return [int(token) for token in best.indices.tolist()]


def _walk(tree: DraftTree, tokens: Sequence[int]) -> Verdict:
    node, path = 0, [0]
    while (accepted := _child_with(tree, node, tokens[node])) is not None:
        path.append(accepted)
        node = accepted
    return Verdict(tuple(path), tokens[node])


def _child_with(tree: DraftTree, node: int, token: int) -> int | None:
    return next((c for c in tree.children[node] if tree.tokens[c] == token), None)


def _try_children(
    tree: DraftTree, node: int, law: Tensor, chance: Chance
) -> tuple[int | None, int]:
    """Accept a child or draw from what rejection leaves of ``law`` [V]."""
    assert tree.q is not None
    rest, offer = law, tree.q[node].to(law)
    for child in tree.children[node]:
        token = tree.tokens[child]
        if chance.accept(float(rest[token]), float(offer[token])):
            return child, token
        rest = residual(rest, offer)
        offer = without(offer, [tree.tokens[c] for c in tree.children[node] if c <= child])
    return None, chance.draw(rest)


def residual(wanted: Tensor, offered: Tensor) -> Tensor:
    """normalise(max(p - q, 0)), [V]; p itself when rounding left nothing."""
    rest = (wanted - offered).clamp(min=0)
    mass = rest.sum()
    return rest / mass if mass > 0 else wanted


def without(law: Tensor, drawn: Sequence[int]) -> Tensor:
    """The law of the next draw without replacement, [V].

    Where the mass is exhausted the next draw is uniform over what was not drawn yet.
    """
    rest = law.clone()
    rest[list(drawn)] = 0
    mass = rest.sum()
    if mass > 0:
        return rest / mass
    rest = torch.ones_like(law)
    rest[list(drawn)] = 0
    return rest / rest.sum().clamp(min=1)
