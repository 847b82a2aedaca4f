"""RowTable: seconds of a pass by type of a GGUF file on this machine, and the type that it suggests."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from engine.models.gguf.file_types import FULL_TYPES, equals_of

WIDTHS = (1, 4, 16)  # rows of a pass: plain decoding, a short draft, a long one
USUAL = "q4_k_m"  # the type that others are compared with
WORTHWHILE = 0.9  # of a pass's time, at every width: a faster type takes no more


@dataclass(frozen=True, slots=True)
class RowTable:
    """Seconds of passes of ``WIDTHS`` rows of one small model, by type of its file."""

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
        worst = {one: max(self.shares(one, kind)) for one in able}
        best = min(able, key=worst.__getitem__, default=kind)
        return best if worst.get(best, 1.0) <= WORTHWHILE else None

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
