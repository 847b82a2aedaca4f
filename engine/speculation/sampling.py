"""Logits to the law that plain decoding follows: temperature, top-k, top-p, min-p."""

from dataclasses import replace
from math import isfinite

import torch
from torch import Tensor

from engine.errors import NumericalError
from engine.request import SamplingParams
from engine.speculation.filter_tokens import Blocks, filtered

COLDEST = 1e-30  # colder changes no law, and float32 cannot divide by it
_HEAD = 256  # a nucleus is almost always inside the likeliest few, and finding these needs no sort


def probabilities(logits: Tensor, params: SamplingParams) -> Tensor:
    """The law [..., V] of the next token; one-hot at the first largest logit when greedy.

    Filters act after the temperature in the order top-k, top-p, min-p, each on the renormalised
    rest. At least float32; raises NumericalError on logits that are not finite.
    """
    logits = logits if logits.dtype == torch.float64 else logits.float()
    if 0 < params.temperature < COLDEST:
        params = replace(params, temperature=COLDEST)
    if logits.is_cpu and params.filters and not params.greedy:
        return shortlisted(logits, params)
    return at_once(logits, params)


def shortlisted(logits: Tensor, params: SamplingParams) -> Tensor:
    """``probabilities`` row by row: a processor looks at few tokens sooner than at all of them."""
    laws = torch.zeros(logits.shape, dtype=logits.dtype)
    rows = (one.reshape(-1, logits.shape[-1]).numpy(force=True) for one in (logits, laws))
    for row, law in zip(*rows, strict=True):
        blocks = Blocks(row)
        if not isfinite(blocks.best):
            raise not_finite()
        tokens, shares = filtered(blocks, params)
        law[tokens] = shares
    return laws


def at_once(logits: Tensor, params: SamplingParams) -> Tensor:
    """``probabilities`` of all rows at once, by operations on all tokens: what a GPU does best."""
    if params.greedy:
        check_finite(logits.amax(-1))
        return torch.zeros_like(logits).scatter_(-1, logits.argmax(-1, keepdim=True), 1.0)
    if params.temperature != 1:
        logits = (logits - logits.amax(-1, keepdim=True)).div_(params.temperature)
    law = torch.softmax(logits, -1)
    check_finite(law[..., 0])  # one that is not makes the whole row so
    if 0 < params.top_k < law.shape[-1]:
        law = _keep(law, law >= law.topk(params.top_k).values[..., -1:])
    if params.top_p < 1:
        law = _keep(law, _nucleus(law, params.top_p))
    if params.min_p > 0:
        law = _keep(law, law >= params.min_p * law.amax(-1, keepdim=True))
    return law


def check_finite(telling: Tensor) -> None:
    """Raise NumericalError unless these are finite numbers: of every row one that tells of all.

    NaN counts as the largest logit; minus infinity is a token that never comes.
    """
    if not bool(torch.isfinite(telling).all()):
        raise not_finite()


def not_finite() -> NumericalError:
    """What is raised of such logits."""
    return NumericalError("the model's logits are not finite; its weights may be damaged")


def _keep(law: Tensor, mask: Tensor) -> Tensor:
    kept = law * mask
    return kept / kept.sum(-1, keepdim=True)


def _nucleus(law: Tensor, top_p: float) -> Tensor:
    """The smallest set of likeliest tokens whose mass reaches ``top_p``: keep the one that crosses.

    Of tokens that are equally likely at the cut, the first ones stay.
    """
    ranked, reached = _head(law, top_p)
    size = (reached - ranked < top_p).sum(-1, keepdim=True)
    least = ranked.gather(-1, size - 1)
    above, tied = law > least, law == least
    return above | (tied & (tied.cumsum(-1) <= size - above.sum(-1, keepdim=True)))


def _head(law: Tensor, top_p: float) -> tuple[Tensor, Tensor]:
    """The likeliest probabilities in order, far enough to reach ``top_p``, and their running sum."""
    ranked = law.topk(min(_HEAD, law.shape[-1])).values
    reached = ranked.cumsum(-1)
    if not bool((reached[..., -1] >= top_p).all()):
        ranked = law.sort(dim=-1, descending=True).values
        reached = ranked.cumsum(-1)
    return ranked, reached
