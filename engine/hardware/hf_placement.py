"""Models that are loaded whole, by the transformers library: where, and in which number format."""

from dataclasses import dataclass

from engine.hardware.candidates import BFLOAT16, LARGE, room_of
from engine.hardware.footprint import BYTES, CPU, CUDA
from engine.hardware.plan import Refusal, Tier
from engine.hardware.profile import GIB, HardwareProfile
from engine.hardware.reasons import gib

BESIDE = 4  # one part in so many of the weights, on a GPU, for conversations and passes
LEAST_BESIDE = GIB


@dataclass(frozen=True, slots=True)
class HfPlacement:
    """Where all the weights go."""

    device: str
    dtype: str


def whole(
    profile: HardwareProfile, model: str, elements: int, wished: str | None = None
) -> HfPlacement | Refusal:
    """The place and the format of ``elements`` weights: the one that is wished, or what suits best.

    A GPU where they fit, read through RAM, with room beside them, as how much a conversation takes
    is known to the library alone. Else RAM: float32 sums exactly; bfloat16 halves what every pass
    reads, which pays for large models on processors that multiply it, and may be all that fits.
    """
    free = room_of(profile)
    on_gpu = wished or "bfloat16"
    weights = elements * BYTES[on_gpu]
    with_room = weights + max(weights // BESIDE, LEAST_BESIDE)
    if with_room <= free[Tier.DEVICE] and weights <= free[Tier.RAM]:
        return HfPlacement(CUDA, on_gpu)
    halves = 4 * elements >= LARGE and bool(BFLOAT16 & set(profile.instructions))
    usual = ("bfloat16", "float32") if halves else ("float32", "bfloat16")
    needs = {name: elements * BYTES[name] for name in ((wished,) if wished else usual)}
    found = next((name for name, needed in needs.items() if needed <= free[Tier.RAM]), None)
    if found is not None:
        return HfPlacement(CPU, found)
    dtype, least = min(needs.items(), key=lambda need: need[1])
    return Refusal(
        model,
        least,
        free[Tier.RAM],
        f"{model} needs {gib(least)} in RAM in {dtype}, all of it at once as its family cannot be "
        f"streamed; {gib(free[Tier.RAM])} are free: choose a smaller model, or a GGUF file of it",
    )
