"""Logits to the distribution that plain decoding samples from: temperature, top-k, top-p, min-p."""

from dataclasses import replace
from math import isfinite, log

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from engine.errors import NumericalError
from engine.request import SamplingParams
from engine.speculation.top_k import RowBlocks, Tokens

COLDEST = 1e-30  # a lower temperature changes nothing, and float32 cannot divide by it
_HEAD = 256  # most likely tokens that nearly always hold the mass of top-p; found without sorting
_FIRST, _WIDER = 64, 8  # the same, row by row: start with 64 tokens, then 8 times as many
_SLACK = 1e-3  # of a logit: min-p compares probabilities, so preselect a little more

Weights = NDArray[np.float64]


def probabilities(logits: Tensor, params: SamplingParams) -> Tensor:
    """The distribution [..., V] of the next token; one-hot at the first largest logit when greedy.

    Filters act after the temperature in the order top-k, top-p, min-p, each on the renormalised
    rest. At least float32; raises NumericalError if a row is not finite.
    """
    logits = logits if logits.dtype == torch.float64 else logits.float()
    if 0 < params.temperature < COLDEST:
        params = replace(params, temperature=COLDEST)
    if logits.is_cpu and params.filters and not params.greedy:
        return filter_by_row(logits, params)
    return filter_batched(logits, params)


def check_finite(values: Tensor) -> None:
    """Raise NumericalError unless all ``values`` are finite; pass each row's maximum.

    NaN counts as the largest logit. Minus infinity marks an impossible token and is allowed.
    """
    if not bool(torch.isfinite(values).all()):
        raise not_finite_error()


def not_finite_error() -> NumericalError:
    """The error for logits that are not finite."""
    return NumericalError("the model's logits are not finite; its weights may be damaged")


# All rows at once, with operations over the whole vocabulary: fastest on a GPU.


def filter_batched(logits: Tensor, params: SamplingParams) -> Tensor:
    """``probabilities`` for all rows at once."""
    if params.greedy:
        check_finite(logits.amax(-1))
        return torch.zeros_like(logits).scatter_(-1, logits.argmax(-1, keepdim=True), 1.0)
    if params.temperature != 1:
        logits = (logits - logits.amax(-1, keepdim=True)).div_(params.temperature)
    probs = torch.softmax(logits, -1)
    check_finite(probs[..., 0])  # one bad logit makes the whole row NaN
    if 0 < params.top_k < probs.shape[-1]:
        probs = _keep(probs, probs >= probs.topk(params.top_k).values[..., -1:])
    if params.top_p < 1:
        probs = _keep(probs, _nucleus(probs, params.top_p))
    if params.min_p > 0:
        probs = _keep(probs, probs >= params.min_p * probs.amax(-1, keepdim=True))
    return probs


def _keep(probs: Tensor, mask: Tensor) -> Tensor:
    kept = probs * mask
    return kept / kept.sum(-1, keepdim=True)


def _nucleus(probs: Tensor, top_p: float) -> Tensor:
    """Mask of the smallest set of most likely tokens whose mass reaches ``top_p``.

    The token that crosses it is kept. Of equally likely tokens at the cut the first ones are kept.
    """
    ranked, mass = _ranked(probs, top_p)
    size = (mass - ranked < top_p).sum(-1, keepdim=True)
    least = ranked.gather(-1, size - 1)
    above, tied = probs > least, probs == least
    return above | (tied & (tied.cumsum(-1) <= size - above.sum(-1, keepdim=True)))


def _ranked(probs: Tensor, top_p: float) -> tuple[Tensor, Tensor]:
    """The largest probabilities in order, enough to reach ``top_p``, and their running sum."""
    ranked = probs.topk(min(_HEAD, probs.shape[-1])).values
    mass = ranked.cumsum(-1)
    if not bool((mass[..., -1] >= top_p).all()):
        ranked = probs.sort(dim=-1, descending=True).values
        mass = ranked.cumsum(-1)
    return ranked, mass


# Row by row, reading few tokens: fastest on a CPU. Drafting and verifying ask for a distribution at
# every token. With 152,000 tokens a sort takes 3 to 4 ms, as long as a pass of a small model; this
# takes 0.1 to 0.5 ms.


def filter_by_row(logits: Tensor, params: SamplingParams) -> Tensor:
    """``probabilities`` with filters, one row after the other, on the CPU."""
    probs = torch.zeros(logits.shape, dtype=logits.dtype)
    rows = (each.reshape(-1, logits.shape[-1]).numpy(force=True) for each in (logits, probs))
    for row, out in zip(*rows, strict=True):
        blocks = RowBlocks(row)
        if not isfinite(blocks.largest):
            raise not_finite_error()
        tokens, weights = _filter_row(blocks, params)
        out[tokens] = weights / weights.sum()
    return probs


def _filter_row(blocks: RowBlocks, params: SamplingParams) -> tuple[Tokens, Weights]:
    """The tokens [m] that pass the filters, in ascending order, and their unnormalised weights."""
    if 0 < params.top_k < len(blocks.row):
        tokens = _top_k_of_row(blocks, params.top_k)
        weights = _weights(blocks, tokens, params)
        if params.top_p < 1:
            tokens, weights = _nucleus_of_row(tokens, weights, params.top_p * weights.sum())
    elif params.top_p < 1:
        tokens, weights = _top_p_of_row(blocks, params)
    else:
        near = params.temperature * log(params.min_p) if params.min_p else -np.inf
        tokens = blocks.reaching(blocks.largest + near - _SLACK)
        weights = _weights(blocks, tokens, params)
    if params.min_p > 0:
        kept = weights >= params.min_p * weights.max()
        tokens, weights = tokens[kept], weights[kept]
    return tokens, weights


def _weights(blocks: RowBlocks, tokens: Tokens, params: SamplingParams) -> Weights:
    """Unnormalised probabilities; the most likely token's is 1."""
    scaled = (blocks.row[tokens].astype(np.float64) - blocks.largest) / params.temperature
    weights: Weights = np.exp(scaled)
    return weights


def _top_k_of_row(blocks: RowBlocks, count: int) -> Tokens:
    """The ``count`` most likely tokens, and all that tie with the last of them."""
    tokens = blocks.reaching(blocks.threshold(count))
    if len(tokens) <= count:
        return tokens
    logits = blocks.row[tokens]
    kept: Tokens = tokens[logits >= np.partition(logits, -count)[-count]]
    return kept


def _top_p_of_row(blocks: RowBlocks, params: SamplingParams) -> tuple[Tokens, Weights]:
    """The nucleus of the whole vocabulary."""
    wanted, count = params.top_p * _mass(blocks, params), _FIRST
    while True:
        tokens = blocks.reaching(blocks.threshold(count))
        weights = _weights(blocks, tokens, params)
        if count >= len(blocks.row) or weights.sum() >= wanted:
            return _nucleus_of_row(tokens, weights, wanted)
        count *= _WIDER


def _mass(blocks: RowBlocks, params: SamplingParams) -> float:
    """The sum of all weights."""
    number = blocks.row.dtype.type
    scaled = blocks.row - number(blocks.largest)
    scaled /= number(params.temperature)
    return float(np.exp(scaled, out=scaled).sum(dtype=np.float64))


def _nucleus_of_row(tokens: Tokens, weights: Weights, wanted: float) -> tuple[Tokens, Weights]:
    """``_nucleus`` of one row: the smallest set whose weights reach ``wanted``."""
    order = np.argsort(-weights, kind="stable")
    ranked = weights[order]
    size = int((ranked.cumsum() - ranked < wanted).sum())
    kept = np.sort(order[:size])
    return tokens[kept], weights[kept]
