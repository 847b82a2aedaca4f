"""The number format of weights: asked for by name, written into a model's spec."""

from dataclasses import replace

from app.placement.plans import Placed, place
from app.settings import Settings
from engine.errors import ModelUnusable
from engine.hardware.footprint import LLAMA_CPP
from engine.hardware.plan import PlanConstraints
from engine.request import ModelSpec

INT8 = "int8"
FORMATS = {  # each of DTYPES -> (what passes compute in, how weights are held)
    "float32": ("float32", "full"),
    "bfloat16": ("bfloat16", "full"),
    "float16": ("float16", "full"),
    INT8: ("bfloat16", "int8"),  # its operator for single rows reads bytes for bfloat16 alone
}
_PLANNED = {"float16": "bfloat16"}  # as large, and known to the plan


def with_dtype(spec: ModelSpec, name: str) -> ModelSpec:
    """``spec`` in the format of that name; raises ModelUnusable for a GGUF file, which has its own."""
    if spec.backend == LLAMA_CPP:
        raise ModelUnusable(
            f"{spec.folder} is a GGUF file, whose number format is fixed; omit --dtype "
            f"{name}, or write a file of another type with slipstream export-gguf"
        )
    dtype, weights = FORMATS[name]
    return replace(spec, dtype=dtype, weights=weights)


def place_with_dtype(
    settings: Settings, spec: ModelSpec, name: str | None, wishes: PlanConstraints | None = None
) -> Placed:
    """``place`` with the weights in the format of that name; None leaves it to the plan.

    8-bit weights are planned as if they were bfloat16, which they are until they are rounded.
    """
    if name is None:
        return place(settings, spec, wishes)
    asked = with_dtype(spec, name)
    wished = replace(wishes or PlanConstraints(), dtype=_PLANNED.get(asked.dtype, asked.dtype))
    found = place(settings, asked, wished)
    if name == INT8 and found.spec.resident is not None:
        raise ModelUnusable(
            f"{spec.name} does not fit in memory in bfloat16, from which int8 is made, and streamed "
            "weights cannot be rounded; omit --dtype int8, or use a GGUF file of the model"
        )
    exact = replace(found.spec, dtype=asked.dtype, weights=asked.weights)
    return Placed(exact, found.plan)


def dtype_name(spec: ModelSpec) -> str:
    """The name of a spec's format, for people."""
    if spec.backend == LLAMA_CPP:
        return "numbers as in the file"
    return INT8 if spec.weights == INT8 else spec.dtype
