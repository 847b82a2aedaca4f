"""Published models as data: what a plan needs of models that are not downloaded."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import ceil
from types import MappingProxyType

from engine.hardware.checkpoint_sizes import Size, Stored
from engine.hardware.footprint import Footprint, llama_footprint, torch_footprint
from engine.hardware.layers import SMALL, layer_weights, own_embeddings
from engine.hardware.plan import Candidates
from engine.hardware.profile import GIB, HardwareProfile, imagined
from engine.hardware.shape import ModelShape

FP16, Q4 = "fp16", "4-bit"
_Q4_BITS, _Q6_BITS = 4.5, 6.5625  # a weight in llama.cpp's Q4_K and Q6_K blocks
_NORM_BITS = 32.0

# hidden, layers, heads, kv_heads, head_dim, feed_forward, vocab, context; from each config.json
SHAPES: Mapping[str, ModelShape] = MappingProxyType({
    "llama-3.2-1b": ModelShape(2048, 16, 32, 8, 64, 8192, 128256, 131072, tied=True),
    "llama-3.2-3b": ModelShape(3072, 28, 24, 8, 128, 8192, 128256, 131072, tied=True),
    "llama-3.1-8b": ModelShape(4096, 32, 32, 8, 128, 14336, 128256, 131072),
    "llama-3.3-70b": ModelShape(8192, 80, 64, 8, 128, 28672, 128256, 131072),
    "qwen3-0.6b": ModelShape(1024, 28, 16, 8, 128, 3072, 151936, 40960, tied=True),
    "qwen3-14b": ModelShape(5120, 40, 40, 8, 128, 17408, 151936, 40960),
    "qwen3-32b": ModelShape(5120, 64, 64, 8, 128, 25600, 151936, 40960),
    "qwen3-30b-a3b": ModelShape(2048, 48, 32, 4, 128, 768, 151936, 40960, experts=128),
})  # fmt: skip


@dataclass(frozen=True, slots=True)
class Published:
    """One row of the table of plans."""

    shape: str
    form: str  # FP16 as safetensors, Q4 as GGUF (Q4_K_M)
    draft: str | None = None
    exit_layer: int | None = None


MODELS: Mapping[str, Published] = MappingProxyType({
    "layerskip-llama3.2-1b": Published("llama-3.2-1b", FP16, exit_layer=4),
    "llama-3.2-3b": Published("llama-3.2-3b", FP16, "llama-3.2-1b"),
    "llama-3.1-8b": Published("llama-3.1-8b", FP16, "llama-3.2-1b"),
    "llama-3.1-8b-q4": Published("llama-3.1-8b", Q4, "llama-3.2-1b"),
    "qwen3-14b": Published("qwen3-14b", FP16, "qwen3-0.6b"),
    "qwen3-14b-q4": Published("qwen3-14b", Q4, "qwen3-0.6b"),
    "qwen3-32b-q4": Published("qwen3-32b", Q4, "qwen3-0.6b"),
    "llama-3.3-70b": Published("llama-3.3-70b", FP16, "llama-3.2-1b"),
    "llama-3.3-70b-q4": Published("llama-3.3-70b", Q4, "llama-3.2-1b"),
    "qwen3-30b-a3b-q4": Published("qwen3-30b-a3b", Q4, "qwen3-0.6b"),
})  # fmt: skip

MACHINES: Mapping[str, HardwareProfile] = MappingProxyType({
    "8 GB laptop": imagined(0, 8 * GIB),
    "16 GB laptop": imagined(0, 16 * GIB),
    "32 GB desktop": imagined(0, 32 * GIB),
    "8 GB GPU, 16 GB": imagined(8 * GIB, 16 * GIB),
    "12 GB GPU, 32 GB": imagined(12 * GIB, 32 * GIB),
    "24 GB GPU, 64 GB": imagined(24 * GIB, 64 * GIB),
})  # fmt: skip


def candidates(name: str) -> Candidates:
    """The forms in which one of ``MODELS`` can run, and its draft model in the same kind of file."""
    model = MODELS[name]
    return Candidates(
        model=name,
        forms=_forms(name, SHAPES[model.shape], model.form),
        draft=_forms(model.draft, SHAPES[model.draft], model.form) if model.draft else (),
        exit_layer=model.exit_layer,
    )


def _forms(name: str, shape: ModelShape, form: str) -> tuple[Footprint, ...]:
    if form == Q4:
        return (llama_footprint(name, shape, weights(shape, form), Q4),)
    held = weights(shape, form)
    kinds = (("bfloat16", "cuda"), ("float32", "cpu"), ("bfloat16", "cpu"))
    return tuple(torch_footprint(name, shape, held, dtype, device) for dtype, device in kinds)


def weights(shape: ModelShape, form: str) -> Stored:
    """Sizes of the weights, by the shape alone."""
    bits = _q4_bits if form == Q4 else _fp16_bits
    edge = shape.vocab * shape.hidden
    tied_bits = _Q6_BITS if form == Q4 and shape.tied else _Q4_BITS
    table_bits = tied_bits if form == Q4 else 16.0
    embedding, tables = (_size(count, table_bits) for count in (edge, own_embeddings(shape)))
    head = Size() if shape.tied else _size(edge, _Q6_BITS if form == Q4 else 16.0)
    layers = tuple(_layer(shape, index, bits) for index in range(shape.layers))
    return Stored(layers, embedding, head, _size(shape.hidden, _norm(form)), tables)


def _layer(shape: ModelShape, index: int, bits: Callable[[ModelShape, int, str], float]) -> Size:
    parts = layer_weights(shape, index).items()
    return sum((_size(count, bits(shape, index, name)) for name, count in parts), Size())


def _q4_bits(shape: ModelShape, index: int, name: str) -> float:
    """Q4_K_M: half of the value and down maps, those at both ends first, are kept in Q6_K."""
    if name in SMALL:
        return _NORM_BITS
    eighth = shape.layers // 8
    outer = index < eighth or index >= 7 * shape.layers // 8 or (index - eighth) % 3 == 2
    return _Q6_BITS if name in {"value", "down"} and outer else _Q4_BITS


def _fp16_bits(_shape: ModelShape, _index: int, _name: str) -> float:
    return 16.0


def _norm(form: str) -> float:
    return _NORM_BITS if form == Q4 else 16.0


def _size(elements: int, bits: float) -> Size:
    return Size(elements, ceil(elements * bits / 8))
