"""How precisely weights are held, and what that changes, in words."""

from engine.errors import ModelUnusable
from engine.models.inflate import inflated
from engine.models.int8 import quantised
from engine.models.packed import packed
from engine.models.weights import DecoderWeights
from engine.request import ModelSpec

FULL, INT8 = "full", "int8"


def prepared(weights: DecoderWeights, spec: ModelSpec) -> DecoderWeights:
    """Weights as a spec wants them, in the layout that computes fastest; raises ModelUnusable."""
    check(spec)
    widened = inflated(weights, spec.inflate) if spec.inflate > 1 else weights
    return quantised(widened) if spec.weights == INT8 else packed(widened)


def check(spec: ModelSpec) -> None:
    """Raise ModelUnusable for a combination that does not exist."""
    if spec.weights not in (FULL, INT8):
        raise ModelUnusable(f"weights {spec.weights!r} are unknown; choose {FULL} or {INT8}")
    if spec.weights == INT8 and spec.dtype == "float16":
        raise ModelUnusable(
            "int8 weights in float16 could exceed its largest number; choose bfloat16 or float32"
        )


def notes(spec: ModelSpec) -> tuple[str, ...]:
    """One sentence for each way in which the loaded model is not the checkpoint at its fastest."""
    found = []
    if spec.weights == INT8:
        found.append(
            "the weights are rounded to 8 bits: answers are those of the rounded model, which "
            "differ now and then from the full one's; drafting changes nothing about them"
        )
    if spec.dtype == "float16" and spec.device == "cpu":
        found.append(
            "float16 is slow on most processors, which compute it in float32; bfloat16 takes the "
            "same memory"
        )
    return tuple(found)
