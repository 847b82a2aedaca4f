"""Free text up to a mark, as a grammar: the automaton of Knuth, Morris and Pratt."""

from collections import defaultdict

from app.text.formats.json_text import NOTHING
from engine.grammar.rules import Bytes, Choice, Named, Row, Rule


def up_to(mark: bytes, behind: Rule, name: str, *, may_end: bool = False) -> list[tuple[str, Rule]]:
    """Text until ``mark`` stands in it for the first time, and ``behind`` from there on.

    Rule ``NAME i`` is behind the first i bytes of the mark; ``NAME 0`` is the whole. With ``may_end``
    the text may also end anywhere, without the mark.
    """
    rules: list[tuple[str, Rule]] = []
    for known in range(len(mark)):
        reached: defaultdict[int, list[int]] = defaultdict(list)
        for byte in range(256):
            reached[_overlap(mark, mark[:known] + bytes([byte]))].append(byte)
        ways = (
            Row((Bytes(tuple((b, b) for b in some)), behind if many == len(mark) else Named(f"{name} {many}")))
            for many, some in reached.items()
        )  # fmt: skip
        rules.append((f"{name} {known}", Choice((*((NOTHING,) if may_end else ()), *ways))))
    return rules


def _overlap(mark: bytes, text: bytes) -> int:
    """How many bytes at the end of ``text`` are the beginning of the mark."""
    return next(many for many in range(len(text), -1, -1) if text.endswith(mark[:many]))
