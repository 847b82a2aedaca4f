"""Multiply by weights in the processor's own blocked layout (oneDNN).

What it does: a plain ``F.linear`` reads a row-major weight with a kernel for wide batches, and drafts
make narrow ones. The operator that torch's own compiler emits for linear layers on CPUs takes a
reordered weight. Where it is missing, all maps stay plain.

Gain, microseconds for a 27648 x 320 float32 map on two AVX-512 cores: 1 row 2528 plain and 584
packed, 8 rows 3394 and 673, 64 rows 16686 and 2914. A call takes about 20 microseconds before it
multiplies: 1 row through 128 x 352 takes 5 plain and 19 packed, but plain ones round differently in passes
of other widths. Through a large map one row takes 5 to 12 % longer than four, and two up to a third longer,
so they are padded to four. With AVX2 alone one row takes 9 to 27 % less than four: which it is, is measured
once for every shape. So it is found out where fewer rows than four round differently (in float32 with
AVX-512), and from how many rows on they do (in bfloat16 with AMX: 33), which are multiplied in parts. In
bfloat16 fewer rows are always padded: on EPYC cores with AVX-512 one number of 17,000 differed, which no
short comparison finds.

Delete when: ``F.linear`` is as fast with 1 to 8 rows, or the operator is gone (test_onednn_linear.py).
"""

from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from time import perf_counter

import torch
import torch.nn.functional as F
from torch import Tensor

from engine.decoder.decoder import Dense, Linear
from engine.decoder.weights import DecoderWeights, mapped

LARGE = 2**22  # weights of a map whose kernels for few rows may be slower than that for four
NARROW, FOUR = (1, 2), 4  # rows
FEWER = frozenset(range(1, FOUR))
COMPARED = 16  # rows whose bits are compared with those of more
WIDE = (32, 64, 128)
SAMPLE = 2**20  # weights of a large map that are compared
TRIAL = 2**24  # weights that a trial reads, more than most caches hold
TRIALS = 5  # passes of each width, alternating
CLEARLY = 0.97  # of fewer rows' time: four must take less

Timed = Callable[[int], float]
"""Rows -> seconds of a product."""


@dataclass(frozen=True, slots=True)
class OneDnnLinear:
    """A linear map whose weight only the processor's library can read."""

    weight: Tensor  # opaque
    bias: Tensor | None = None
    as_four: frozenset[int] = frozenset()  # row counts that are padded to four
    most: int | None = None  # rows of a call; None: any number

    def __call__(self, x: Tensor) -> Tensor:
        """[..., in] -> [..., out]."""
        rows = x.numel() // x.shape[-1]
        if self.most is not None and rows > self.most:
            parts = torch.split(x.reshape(rows, -1), self.most)
            return torch.cat([self(part) for part in parts]).view(*x.shape[:-1], -1)
        if rows not in self.as_four:
            return self._apply(x)
        four = F.pad(x.reshape(rows, -1), (0, 0, 0, FOUR - rows))
        return self._apply(four)[:rows].view(*x.shape[:-1], -1)

    def _apply(self, x: Tensor) -> Tensor:
        found: Tensor = torch.ops.mkldnn._linear_pointwise(  # noqa: SLF001 - see the first lines
            x, self.weight, self.bias, "none", [], ""
        )
        return found


def packed(weights: DecoderWeights) -> DecoderWeights:
    """The same weights with every linear map packed, or untouched where that cannot be done.

    A head that is tied to the embedding becomes a copy of its own.
    """
    if not can_pack(weights.embedding.device, weights.embedding.dtype):
        return weights
    return mapped(weights, OneDnnPacker().map)


class OneDnnPacker:
    """Packs the maps of one model; a trial serves all maps of a shape."""

    def __init__(self) -> None:
        self._packed: dict[torch.Size, tuple[frozenset[int], int | None]] = {}

    def map(self, linear: Linear) -> Linear:
        """The map packed, or itself where it is not plain."""
        if not isinstance(linear, Dense):
            return linear
        as_four, most = self._calls(linear.weight)
        return OneDnnLinear(reordered(linear.weight), linear.bias, as_four, most)

    def _calls(self, weight: Tensor) -> tuple[frozenset[int], int | None]:
        """Which few rows are padded to four, and how many rows a call may have."""
        if weight.shape not in self._packed:
            slower = choose_as_four(_trial(weight)) if weight.numel() >= LARGE else frozenset[int]()
            part = weight[: max(1, SAMPLE // weight.shape[1])]
            alone = OneDnnLinear(reordered(part))
            if weight.dtype == torch.float32:  # rows of four and more were alike on all processors
                self._packed[weight.shape] = slower | unlike(alone, part), None
            else:
                self._packed[weight.shape] = FEWER, most_alike(alone, part)
        return self._packed[weight.shape]


def unlike(linear: Linear, weight: Tensor) -> frozenset[int]:
    """The row counts below four whose rows get other bits than among four."""
    x = _numbers(FOUR, weight)
    with torch.inference_mode():
        whole = linear(x)
        return frozenset(n for n in FEWER if not torch.equal(linear(x[:n]), whole[:n]))


def most_alike(linear: Linear, weight: Tensor) -> int | None:
    """The most rows that get the bits that they get among ``COMPARED``; None: any number of them."""
    x = _numbers(WIDE[-1], weight)
    most = COMPARED
    with torch.inference_mode():
        alike = torch.cat([linear(part) for part in torch.split(x, COMPARED)])
        for rows in WIDE:
            if not torch.equal(linear(x[:rows]), alike[:rows]):
                return most
            most = rows
    return None


def _numbers(rows: int, weight: Tensor) -> Tensor:
    """Rows [rows, in] without a pattern, in the type of the weight."""
    found = torch.linspace(-1, 1, rows * weight.shape[1]).mul_(1e4).sin_()
    return found.view(rows, -1).to(weight.dtype)


def choose_as_four(timed: Timed) -> frozenset[int]:
    """The row counts that take longer than four rows."""
    turns = [{rows: timed(rows) for rows in (*NARROW, FOUR)} for _ in range(TRIALS)]
    return frozenset(
        rows for rows in NARROW if median(turn[FOUR] / turn[rows] for turn in turns) < CLEARLY
    )


def _trial(weight: Tensor) -> Timed:
    """Times products with copies of this map, too many for any cache, or with a part of it."""
    part = weight[: max(1, TRIAL // weight.shape[1])]
    maps = [OneDnnLinear(reordered(part)) for _ in range(max(1, TRIAL // part.numel()))]
    x = {rows: weight.new_ones(rows, weight.shape[1]) for rows in (*NARROW, FOUR)}

    def timed(rows: int) -> float:
        started = perf_counter()
        with torch.inference_mode():
            for each in maps:
                each(x[rows])
        return perf_counter() - started

    return timed


def can_pack(device: torch.device, dtype: torch.dtype) -> bool:
    """Whether this machine's library takes packed weights of this type; found by trying."""
    if device.type != "cpu":
        return False
    x, weight = torch.ones(2, 64, dtype=dtype), torch.ones(64, 64, dtype=dtype)
    try:
        found = OneDnnLinear(reordered(weight))(x)
    except (AttributeError, RuntimeError):  # another torch release, or a processor without the type
        return False
    return bool((found == 64).all())


def reordered(weight: Tensor) -> Tensor:
    """A weight [out, in] in oneDNN's layout; raises RuntimeError or AttributeError."""
    with torch.inference_mode():
        found: Tensor = torch.ops.mkldnn._reorder_linear_weight(  # noqa: SLF001 - see above
            weight.contiguous(), None
        )
    return found
