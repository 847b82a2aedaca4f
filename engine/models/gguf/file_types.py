"""The types of a GGUF file: how they round weights, and which of equal quality is fastest here."""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from statistics import geometric_mean
from types import MappingProxyType

from engine.models.gguf.header import GgufHeader


@dataclass(frozen=True, slots=True)
class FileType:
    """One type; ``quality`` names the types that lose about as much."""

    number: int  # llama.cpp's, as a file has it
    quality: str
    weight_bytes: float  # of one weight, about


_F, _8, _5, _4 = "16 bits", "8 bits", "5 to 6 bits", "4 bits"
# Of equal quality, the most exact first (llama.cpp's perplexities of Llama 2 70B: Q4_K_M 1.2 % worse
# than 16 bits, Q4_K_S 1.6, Q4_1 2.4, Q4_0 3.6; Q6_K 0.2, Q5_K_M 0.4, Q5_K_S 0.5, Q5_0 1.3).
FILE_TYPES: Mapping[str, FileType] = MappingProxyType({
    "f32": FileType(0, "32 bits", 4.0),
    "bf16": FileType(32, _F, 2.0), "f16": FileType(1, _F, 2.0),
    "q8_0": FileType(7, _8, 34 / 32),
    "q6_k": FileType(18, _5, 0.83), "q5_k_m": FileType(17, _5, 0.73),
    "q5_k_s": FileType(16, _5, 0.71), "q5_0": FileType(8, _5, 0.71),
    "q4_k_m": FileType(15, _4, 0.65), "iq4_nl": FileType(25, _4, 0.6), "iq4_xs": FileType(30, _4, 0.57),
    "q4_k_s": FileType(14, _4, 0.6), "q4_1": FileType(3, _4, 0.65), "q4_0": FileType(2, _4, 0.6),
})  # fmt: skip
FULL_TYPES = ("f32", "f16", "bf16")  # not quantised

WIDTHS = (1, 4, 16)  # rows of a pass: plain decoding, a short draft, a long one
USUAL = "q4_k_m"  # the type that others are compared with
WORTHWHILE = 0.9  # of a pass's time, as the mean over the widths: a faster type takes no more

_NAMED = re.compile(rf"(?<![a-z0-9])({'|'.join(FILE_TYPES)})(?![a-z0-9_])")


def type_in_name(file: str) -> str | None:
    """The type in a file's name, as in ``model-Q4_K_M.gguf``; None where there is none."""
    found = _NAMED.search(file.lower().replace("fp16", "f16"))
    return found[1] if found else None


def type_in_header(header: GgufHeader) -> str | None:
    """The type that a file says it has; None where it says none that is known here."""
    number = header.metadata.get("general.file_type")
    return next((name for name, kind in FILE_TYPES.items() if kind.number == number), None)


def equals_of(kind: str) -> tuple[str, ...]:
    """The types of the same quality, the most exact first, ``kind`` among them."""
    quality = FILE_TYPES[kind].quality
    return tuple(name for name, other in FILE_TYPES.items() if other.quality == quality)


@dataclass(frozen=True, slots=True)
class RowTable:
    """What was measured on this machine: seconds of passes of ``WIDTHS`` rows of one small model, by type of its file."""

    seconds: Mapping[str, tuple[float, ...]]

    def shares(self, kind: str, other: str) -> tuple[float, ...]:
        """The time of a pass of ``kind`` in that of ``other``, by width."""
        pairs = zip(self.seconds[kind], self.seconds[other], strict=True)
        return tuple(seconds / theirs for seconds, theirs in pairs)

    def faster(self, kind: str | None, among: Collection[str] | None = None) -> str | None:
        """The fastest type of the quality of ``kind``, all or ``among`` these; None: none clearly is."""
        if kind is None or kind not in self.seconds:
            return None
        known = [one for one in equals_of(kind) if one in self.seconds]
        able = [one for one in known if among is None or one in among]
        means = {
            one: geometric_mean(shares)
            for one in able
            if max(shares := self.shares(one, kind)) <= 1.0  # slower at no width
        }
        best = min(means, key=means.__getitem__, default=kind)
        return best if means.get(best, 1.0) <= WORTHWHILE else None

    def advice(self, kind: str | None, among: Collection[str] | None = None) -> str:
        """One sentence on a faster type of equal quality, without its full stop; empty: there is none."""
        better = self.faster(kind, among)
        if kind is None or better is None:
            return ""
        one, *_, many = self.shares(better, kind)
        gain = f"{better.upper()} is {1 / one:.1f}x as fast as {kind.upper()} here"
        drafts = f"{1 / many:.1f}x with {WIDTHS[-1]} rows in a pass"
        if kind in FULL_TYPES:
            return f"{gain}, {drafts}"
        order = equals_of(kind)
        less = "less" if order.index(better) > order.index(kind) else "more"
        return f"{gain}, {drafts}; answers are slightly {less} exact"
