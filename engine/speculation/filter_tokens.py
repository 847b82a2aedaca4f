"""Shortlist: the few tokens that top-k, top-p and min-p keep, found without sorting a vocabulary.

A drafted round asks for a law at every token that it proposes and at every one that it judges. Of
152,000 tokens each took 3 to 4 ms by sorting, as long as a pass of a small model: here 0.1 to 0.5.
"""

from math import log
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.request import SamplingParams

Row = NDArray[np.floating[Any]]
Tokens = NDArray[np.intp]

BLOCK = 256  # tokens that are looked at as one
FIRST, WIDER = 64, 8  # tokens that mostly hold the mass of top-p; times as many where they do not
SLACK = 1e-3  # of a logit: min-p is decided by probabilities, not by these


class Blocks:
    """A row of logits and the largest of each block of it: whatever is asked, few blocks have it."""

    def __init__(self, row: Row) -> None:
        """``row`` [V] may hold anything; ``best`` tells whether it is all finite or minus infinity."""
        self.row = row
        self._largest = np.maximum.reduceat(row, np.arange(0, len(row), BLOCK))
        self.best = float(self._largest.max())  # NaN is the largest of all

    def least(self, count: int) -> float:
        """A bound that at least ``count`` tokens reach, and mostly few more; all where fewer can come."""
        bound = float(np.finfo(self.row.dtype).min)
        if count >= len(self.row):
            return bound
        values = self._largest if 2 * count <= len(self._largest) else self.row
        return max(bound, float(np.partition(values, -count)[-count]))

    def reaching(self, bound: float) -> Tokens:
        """The tokens that are as large as the bound or larger, in order."""
        blocks = np.flatnonzero(self._largest >= bound)
        if 4 * len(blocks) > len(self._largest):
            return np.flatnonzero(self.row >= bound)
        tokens = (blocks[:, None] * BLOCK + np.arange(BLOCK)).ravel()
        tokens = tokens[: tokens.searchsorted(len(self.row))]  # the last block may be a shorter one
        found: Tokens = tokens[self.row[tokens] >= bound]
        return found


def filtered(row: Blocks, params: SamplingParams) -> tuple[Tokens, NDArray[np.float64]]:
    """The tokens [m] that the filters keep, in order, and their probabilities.

    The filters act in the order top-k, top-p, min-p, each on the renormalised rest.
    """
    if 0 < params.top_k < len(row.row):
        tokens = _top_k(row, params.top_k)
        weights = _weights(row, tokens, params)
        if params.top_p < 1:
            tokens, weights = _nucleus(tokens, weights, params.top_p * weights.sum())
    elif params.top_p < 1:
        tokens, weights = _top_p(row, params)
    else:
        near = params.temperature * log(params.min_p) if params.min_p else -np.inf
        tokens = row.reaching(row.best + near - SLACK)
        weights = _weights(row, tokens, params)
    if params.min_p > 0:
        kept = weights >= params.min_p * weights.max()
        tokens, weights = tokens[kept], weights[kept]
    return tokens, weights / weights.sum()


def _weights(row: Blocks, tokens: Tokens, params: SamplingParams) -> NDArray[np.float64]:
    """Probabilities but for a factor; the likeliest token's is 1."""
    scaled = (row.row[tokens].astype(np.float64) - row.best) / params.temperature
    weights: NDArray[np.float64] = np.exp(scaled)
    return weights


def _top_k(row: Blocks, count: int) -> Tokens:
    """The ``count`` likeliest, and what is as likely as the last of them."""
    tokens = row.reaching(row.least(count))
    if len(tokens) <= count:
        return tokens
    logits = row.row[tokens]
    kept: Tokens = tokens[logits >= np.partition(logits, -count)[-count]]
    return kept


def _top_p(row: Blocks, params: SamplingParams) -> tuple[Tokens, NDArray[np.float64]]:
    """The nucleus of the whole vocabulary."""
    wanted, count = params.top_p * _mass(row, params), FIRST
    while True:
        tokens = row.reaching(row.least(count))
        weights = _weights(row, tokens, params)
        if count >= len(row.row) or weights.sum() >= wanted:
            return _nucleus(tokens, weights, wanted)
        count *= WIDER


def _mass(row: Blocks, params: SamplingParams) -> float:
    """Sum of all weights."""
    number = row.row.dtype.type
    scaled = row.row - number(row.best)
    scaled /= number(params.temperature)
    return float(np.exp(scaled, out=scaled).sum(dtype=np.float64))


def _nucleus(
    tokens: Tokens, weights: NDArray[np.float64], wanted: float
) -> tuple[Tokens, NDArray[np.float64]]:
    """The smallest set of likeliest tokens that weighs ``wanted``: keep the one that crosses.

    Of tokens that are equally likely at the cut, the first ones stay.
    """
    order = np.argsort(-weights, kind="stable")
    ranked = weights[order]
    size = int((ranked.cumsum() - ranked < wanted).sum())
    kept = np.sort(order[:size])
    return tokens[kept], weights[kept]
