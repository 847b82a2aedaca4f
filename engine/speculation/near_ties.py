"""Near ties: choices that the same model could make otherwise, were its logits rounded differently.

A pass of many rows may round unlike a pass of one. Where the difference of two logits changes by at
most ``margin`` between the two, a choice that no such change alters is plain decoding's.
"""

from collections.abc import Sequence
from dataclasses import replace
from math import exp, inf
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from engine.request import SamplingParams
from engine.speculation.rng import RandomSource
from engine.speculation.sampling import probabilities
from engine.speculation.top_k import top_k
from engine.speculation.tree import DraftTree
from engine.speculation.verify import Logits, Verdict


class Judged(NamedTuple):
    """One request's part of a pass, and what was made of it."""

    tree: DraftTree
    logits: Logits  # [N, V]
    sampling: SamplingParams
    rng: RandomSource
    began: Any  # marks ``rng`` before the verdict
    verdict: Verdict


def until_near_tie(judged: Judged, margin: float) -> Verdict:
    """The verdict up to and with its first near tie, whose random choice is still to be made by ``rng``.

    What is sampled without a seed has none: its law is as near to plain's as rounding lets it be.
    """
    tree, logits, sampling, rng, began, verdict = judged
    chosen = [*(tree.tokens[node] for node in verdict.path[1:]), verdict.bonus]
    if sampling.greedy:
        certain = _certain_greedy(logits, verdict.path, margin)
    elif sampling.seed is not None:
        rng.rewind(began)
        rows = torch.as_tensor(logits)
        certain = _certain_seeded(
            [rows[node] for node in verdict.path], chosen, sampling, rng, margin
        )
    else:
        return verdict
    if certain == len(chosen):
        return verdict
    return Verdict(verdict.path[: certain + 1], chosen[certain], near_tie=True)


def _certain_greedy(logits: Logits, path: tuple[int, ...], margin: float) -> int:
    """How many choices, from the root on, are no near ties."""
    gaps = _gaps(logits, path)
    return next((at for at, gap in enumerate(gaps) if gap <= margin), len(gaps))


def _certain_seeded(
    rows: Sequence[Tensor], chosen: Sequence[int], sampling: SamplingParams, rng: RandomSource,
    margin: float,
) -> int:  # fmt: skip
    """The same of tokens that were sampled from these rows [V], one random choice for each."""
    for at, (row, token) in enumerate(zip(rows, chosen, strict=True)):
        mark = rng.mark()
        if not _stands(row, token, sampling, rng, margin):
            rng.rewind(mark)
            return at
    return len(chosen)


def _gaps(logits: Logits, path: tuple[int, ...]) -> list[float]:
    """Largest logit less the second of these rows; in NumPy where it can be, which is faster."""
    if isinstance(logits, Tensor) and not logits.is_cpu:
        best = top_k(logits[list(path)].float(), 2).values
        found: list[float] = (best[:, 0] - best[:, 1]).tolist()
        return found
    rows = logits if isinstance(logits, np.ndarray) else logits.float().numpy(force=True)
    gaps = []
    for row in (rows[node] for node in path):
        at = int(row.argmax())
        others = max(row[:at].max(initial=-inf), row[at + 1 :].max(initial=-inf))
        gaps.append(float(row[at] - others))
    return gaps


def _stands(
    row: Tensor, token: int, sampling: SamplingParams, rng: RandomSource, margin: float
) -> bool:
    """Whether the next random numbers choose the token though its logit is less by the margin.

    Tokens count that a filter leaves out here and would not, were they so much likelier.
    """
    held_back = row.to(torch.promote_types(row.dtype, torch.float32), copy=True)
    held_back[token] -= margin
    if sampling.filters:
        if not probabilities(held_back, sampling)[token] > 0:
            return False
        kept = probabilities(row, _wider(sampling, margin)) > 0
        held_back[row < row[kept].min() - margin] = -inf
        sampling = replace(sampling, top_k=0, top_p=1.0, min_p=0.0)
    return rng.draw(probabilities(held_back, sampling)) == token


def _wider(sampling: SamplingParams, margin: float) -> SamplingParams:
    """Filters that keep what would be kept, were a token's logit less than others' by the margin."""
    less = exp(-margin / max(sampling.temperature, 1e-3))
    top_p = sampling.top_p if sampling.top_p == 1 else 1 - (1 - sampling.top_p) * less
    return replace(sampling, top_p=top_p, min_p=sampling.min_p * less)
