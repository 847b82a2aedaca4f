"""Models that are loaded whole, by the transformers library: in which number format, if at all."""

from engine.hardware.footprint import BYTES
from engine.hardware.plan import Refusal, Tier
from engine.hardware.profile import HardwareProfile
from engine.hardware.reasons import gib
from engine.hardware.rungs import BFLOAT16, LARGE, room_of


def whole(
    profile: HardwareProfile, model: str, elements: int, wished: str | None = None
) -> str | Refusal:
    """The format of ``elements`` weights in RAM: the one that is wished, or else what suits best.

    Float32 sums exactly; bfloat16 halves what every pass reads, which pays for large models on
    processors that multiply it, and may be all that fits.
    """
    halves = 4 * elements >= LARGE and bool(BFLOAT16 & set(profile.instructions))
    usual = ("bfloat16", "float32") if halves else ("float32", "bfloat16")
    free = room_of(profile)[Tier.RAM]
    needs = {name: elements * BYTES[name] for name in ((wished,) if wished else usual)}
    found = next((name for name, needed in needs.items() if needed <= free), None)
    if found is not None:
        return found
    dtype, least = min(needs.items(), key=lambda need: need[1])
    return Refusal(
        model,
        least,
        free,
        f"{model} needs {gib(least)} in RAM in {dtype}, all of it at once as its family cannot be "
        f"streamed; {gib(free)} are free: choose a smaller model, or a GGUF file of it",
    )
