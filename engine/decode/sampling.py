"""Logits to the law that plain decoding follows: temperature, top-k, top-p, min-p."""

import torch
from torch import Tensor

from engine.errors import NumericalError
from engine.request import SamplingParams


def probabilities(logits: Tensor, params: SamplingParams) -> Tensor:
    """The law [..., V] of the next token; one-hot at the first largest logit when greedy.

    Filters act after the temperature in the order top-k, top-p, min-p, each on the renormalised
    rest. At least float32; raises NumericalError on logits that are not finite.
    """
    logits = logits if logits.dtype == torch.float64 else logits.float()
    if not bool(torch.isfinite(logits.max(-1).values).all()):
        raise NumericalError("the model's logits are not finite; its weights may be damaged")
    if params.greedy:
        return torch.zeros_like(logits).scatter_(-1, logits.argmax(-1, keepdim=True), 1.0)
    law = torch.softmax((logits - logits.max(-1, keepdim=True).values) / params.temperature, -1)
    if 0 < params.top_k < law.shape[-1]:
        law = _keep(law, law >= law.topk(params.top_k).values[..., -1:])
    if params.top_p < 1:
        law = _keep(law, _nucleus(law, params.top_p))
    if params.min_p > 0:
        law = _keep(law, law >= params.min_p * law.max(-1, keepdim=True).values)
    return law


def _keep(law: Tensor, mask: Tensor) -> Tensor:
    kept = law * mask
    return kept / kept.sum(-1, keepdim=True)


def _nucleus(law: Tensor, top_p: float) -> Tensor:
    """The smallest set of likeliest tokens whose mass reaches ``top_p``: keep the one that crosses."""
    ranked, order = law.sort(dim=-1, descending=True, stable=True)
    inside = ranked.cumsum(-1) - ranked < top_p
    return torch.zeros_like(inside).scatter_(-1, order, inside)
