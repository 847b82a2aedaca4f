"""Which instructions the processor has, as Linux lists them."""

import re
from pathlib import Path

INSTRUCTIONS = (
    "avx2", "fma", "avx_vnni", "avx512f", "avx512_vnni", "avx512_bf16", "amx_bf16", "amx_int8", "asimd",
    "bf16",
)  # fmt: skip
BFLOAT16 = frozenset({"avx512_bf16", "amx_bf16", "bf16"})  # those that multiply it
INT8 = frozenset({"avx_vnni", "avx512_vnni", "amx_int8"})  # those that multiply bytes without loss


def multiplies_int8() -> bool:
    """Whether the processor does, with sums of 32 bits."""
    return not INT8.isdisjoint(instruction_sets())


def multiplies_bfloat16() -> bool:
    """Whether the processor does; where it does not, reading such numbers takes longer."""
    return not BFLOAT16.isdisjoint(instruction_sets())


def instruction_sets(root: Path = Path("/")) -> tuple[str, ...]:
    """Those of ``INSTRUCTIONS`` that the first processor lists; none where the system has no list."""
    listed = all_instructions(root).split()
    return tuple(name for name in INSTRUCTIONS if name in listed)


def all_instructions(root: Path = Path("/")) -> str:
    """All that the first processor lists, in one line; empty where the system has no list."""
    list_of_processors = root / "proc/cpuinfo"
    text = list_of_processors.read_text() if list_of_processors.exists() else ""
    found = re.search(r"^(?:flags|Features)\s*:(.*)$", text, re.MULTILINE)
    return found[1].strip() if found else ""
