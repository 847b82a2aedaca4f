"""Multiply 8-bit rows by 8-bit weights (W8A8) with the processor's integer products (oneDNN).

What it does: where there is no compiler for the kernel of ``native_linear``, a weight is rounded once, with one scale per output. A row is rounded when it comes, to
255 steps between its least and its largest number; so its bits depend on no other row, and sums of
integers are exact in any order. A row therefore gets the same bits in passes of any width. The operator
is the one that torch's own compiler emits for int8 linear layers.

Gain, microseconds of one row and of 16 for a 896 x 9728 map on two AMX cores: 685 and 885.

Delete when: torch has one call for it that takes a scale per row, or the operator is gone
(test_onednn_int8.py).
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from engine.decoder.decoder import Dense
from engine.platform.instructions import multiplies_int8
from engine.platform.native_linear import Int8Kernel, NativeLinear

STEPS = 127  # of a weight, on either side of zero
LEVELS = 255  # of a row, from its least number to its largest
PART = 2**24  # weights that are rounded at a time
LEAST = 1e-30  # the range of a row that is all one number


@dataclass(frozen=True, slots=True)
class W8A8Linear:
    """A linear map over a packed int8 weight [out, in] that rounds the rows, too."""

    weight: Tensor  # opaque
    scale: Tensor  # [out] float32
    sums: Tensor  # [out] float32: the rounded weight's rows summed, times scale
    bias: Tensor | None = None  # [out] float32

    def __call__(self, x: Tensor) -> Tensor:
        """[..., in] -> [..., out], both in one type; computed in float32."""
        rows = x.reshape(-1, x.shape[-1]).float()
        # two calls: the one that finds both takes five times as long
        low, high = rows.amin(1, keepdim=True), rows.amax(1, keepdim=True)
        step = (high - low).clamp_min_(LEAST).div_(LEVELS)
        # adding a half and cutting off rounds: one call less
        levels = torch.addcmul(0.5 - low / step, rows, 1 / step).clamp_max_(LEVELS).to(torch.uint8)
        found = product(levels, self.weight, self.scale).mul_(step).addcmul_(low, self.sums)
        if self.bias is not None:
            found += self.bias
        return found.to(x.dtype).view(*x.shape[:-1], -1)


@dataclass(frozen=True, slots=True)
class Rounded:
    """A weight in 255 steps from minus to plus the largest of each output."""

    levels: Tensor  # [out, in] int8
    scale: Tensor  # [out] float32
    bias: Tensor | None  # [out] float32

    @classmethod
    def of(cls, linear: Dense) -> "Rounded":
        """Rounds to the nearest step, some outputs at a time: a head in float32 takes gigabytes."""
        levels = torch.empty(linear.weight.shape, dtype=torch.int8)
        scale = torch.empty(len(levels))
        some = max(1, PART // levels.shape[1])
        for first in range(0, len(levels), some):
            part = linear.weight[first : first + some].float()
            largest = part.abs().amax(1)
            each = torch.where(largest > 0, largest / STEPS, 1.0)
            scale[first : first + some] = each
            steps = (part / each.unsqueeze(1)).round_().clamp_(-STEPS, STEPS)
            levels[first : first + some] = steps.to(torch.int8)
        return cls(levels, scale, None if linear.bias is None else linear.bias.float())

    def packed(self, kernel: Int8Kernel | None = None) -> W8A8Linear | NativeLinear:
        """The map; ``kernel`` multiplies, or else torch's operator."""
        if kernel is not None:
            return kernel.map(self.levels, self.scale, self.bias)
        sums = self.levels.sum(1) * self.scale
        return W8A8Linear(packed(self.levels), self.scale, sums, self.bias)


def product(levels: Tensor, weight: Tensor, scale: Tensor) -> Tensor:
    """uint8 [n, in] times a packed weight, times scale [out]: [n, out] float32."""
    none = torch.zeros(1, dtype=torch.int32)
    found: Tensor = torch.ops.onednn.qlinear_pointwise(
        levels, 1.0, 0, weight, scale, none, None, 1.0, 0, torch.float32, "none", [], ""
    )
    return found


def packed(levels: Tensor) -> Tensor:
    """An int8 weight [out, in] in oneDNN's layout; raises RuntimeError or AttributeError."""
    with torch.inference_mode():
        found: Tensor = torch.ops.onednn.qlinear_prepack(levels, None)
    return found


def can_multiply_rounded(device: torch.device) -> bool:
    """Whether the processor multiplies bytes without loss; found by trying.

    Without the instructions for it, the sum of two products is cut to 16 bits.
    """
    if device.type != "cpu" or not multiplies_int8():
        return False
    levels = torch.full((64, 64), STEPS, dtype=torch.int8)
    try:
        found = product(
            torch.full((2, 64), LEVELS, dtype=torch.uint8), packed(levels), torch.ones(64)
        )
    except (AttributeError, RuntimeError):  # another torch release
        return False
    return bool((found == 64 * STEPS * LEVELS).all())
