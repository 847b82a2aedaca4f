"""How precisely weights are held, and what that changes, in words."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch

from engine.decoder.decoder import Layer, Linear
from engine.decoder.inflate import inflated
from engine.decoder.weights import (
    DecoderWeights,
    computing_in,
    dtype_named,
    load_weights,
    mapped,
)
from engine.errors import ModelUnusable
from engine.models.gguf.library import llama_library
from engine.models.own.int8 import Int8Quantiser
from engine.models.own.rounded import rounded_weights
from engine.platform.native_linear import Bfloat16Kernel, bfloat16_kernel
from engine.platform.numpy_forward import SMALL, with_numpy_forward
from engine.platform.onednn_int8 import can_multiply_rounded
from engine.platform.onednn_linear import OneDnnPacker, can_pack
from engine.platform.toolchain import REBUILD
from engine.platform.upcast_linear import Upcaster, Widening, wide_type
from engine.request import ModelSpec

FULL, INT8 = "full", "int8"


def read(spec: ModelSpec, device: torch.device) -> DecoderWeights:
    """The weights in a spec's folder as the spec wants them; raises ModelUnusable.

    Each layer takes its last form as soon as it is read, so memory never holds two of the model.
    """
    check(spec)
    folder, dtype = Path(spec.folder), dtype_named(spec.dtype)
    if spec.weights == INT8 and can_multiply_rounded(device):
        return computing_in(rounded_weights(folder, dtype, spec.context), torch.float32)
    kernel = _kernel(spec, device)
    held = change(spec, device, dtype) if kernel is None else kernel.map
    at_once = spec.inflate == 1 and not _tiny(folder)
    each = (lambda _: partial(Layer.mapped, change=held)) if at_once else None
    found = mapped(_whole(load_weights(folder, dtype, device, spec.context, each), spec), held)
    return found if kernel is None else computing_in(found, torch.float32)


def _tiny(folder: Path) -> bool:
    """Whether NumPy may run it row by row, for which it reads plain maps."""
    return sum(file.stat().st_size for file in folder.glob("*.safetensors")) <= 4 * SMALL


def _kernel(spec: ModelSpec, device: torch.device) -> Bfloat16Kernel | None:
    """What multiplies full bfloat16 weights faster than torch, where it is there."""
    wanted = spec.weights == FULL and spec.dtype == "bfloat16" and device.type == "cpu"
    return bfloat16_kernel() if wanted else None


def _whole(weights: DecoderWeights, spec: ModelSpec) -> DecoderWeights:
    """Changes to the whole model, after its layers are read."""
    if spec.inflate > 1:
        weights = inflated(weights, spec.inflate)
    return with_numpy_forward(weights) if spec.weights == FULL else weights


def change(spec: ModelSpec, device: torch.device, dtype: torch.dtype) -> Callable[[Linear], Linear]:
    """What replaces every linear map: the layout that is fastest on this machine."""
    upcasts = wide_type(device, dtype) != dtype
    if spec.weights == INT8:
        return Int8Quantiser(Widening() if upcasts else None).map
    if upcasts:
        return Upcaster(Widening(), exact=bool(spec.exact)).map
    return OneDnnPacker().map if can_pack(device, dtype) else _unchanged


def _unchanged(linear: Linear) -> Linear:
    return linear


def check(spec: ModelSpec) -> None:
    """Raise ModelUnusable for a combination that does not exist."""
    if spec.weights not in (FULL, INT8):
        raise ModelUnusable(f"weights {spec.weights!r} are unknown; choose {FULL} or {INT8}")
    if spec.weights == INT8 and spec.inflate > 1:
        raise ModelUnusable("int8 weights of an inflated model do not exist; omit one of both")
    if spec.weights == INT8 and spec.dtype == "float16":
        raise ModelUnusable(
            "int8 weights in float16 could exceed its largest number; choose bfloat16 or float32"
        )


def notes(spec: ModelSpec) -> tuple[str, ...]:
    """One sentence for each way in which the loaded model differs from the checkpoint, or is slower."""
    found = []
    if spec.weights == INT8:
        found.append(
            "the weights are rounded to 8 bits: answers are those of the rounded model, which "
            "differ now and then from the full one's (of two small models' tokens 4 and 7 in 100 "
            "changed); drafting changes nothing about them"
        )
    if spec.backend == "llama_cpp" and (compiler := llama_library().amx_left_out_by):
        found.append(
            f"llama.cpp runs without this processor's AMX: it was compiled by {compiler}, which leaves "
            f"AMX's set-up out; compile it again with: {REBUILD}"
        )
    return tuple(found)
