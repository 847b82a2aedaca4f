"""Measure passes of one small model in every type of a GGUF file, as llama.cpp serves them here."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median

from engine.interfaces.target import UNLIMITED, Target
from engine.models.gguf.export import quantise
from engine.models.gguf.file_types import FILE_TYPES, USUAL, WIDTHS, RowTable
from engine.models.gguf.target import load
from engine.platform.huge_pages import in_huge_pages
from engine.request import ModelSpec
from engine.runtime.profiling import exact_rows, timed
from engine.runtime.rounding import RowComparison, varied
from engine.speculation.tree import chain

MEASURED = tuple(name for name in FILE_TYPES if name != "f32")
ROUNDS = 11  # of a pass of each type; each type's weights have left the caches when its turn comes
PAGES_SECONDS = 1.0  # that moving one file's weights to huge pages may take


def measure(
    full: Path, progress: Callable[[str], None], *, exact: bool, kinds: Sequence[str] = MEASURED
) -> RowTable:
    """Measure a GGUF file of 16 bits in these types, ``USUAL`` among them, written next to it.

    ``exact`` is as in ``ModelSpec``; ``progress`` gets a few words now and then. Raises ModelUnusable.
    """
    targets: dict[str, Target] = {}
    for number, kind in enumerate(kinds, start=1):
        progress(f"making {kind.upper()}, {number} of {len(kinds)} types")
        file = full.with_name(f"{kind}.gguf")
        quantise(full, kind, file, lambda *_: None)
        targets[kind] = _loaded(file, exact=exact)
    columns = []
    for rows in WIDTHS:
        progress(f"measuring passes of {rows} {'row' if rows == 1 else 'rows'}")
        columns.append(_column(targets, rows))
    return RowTable({kind: tuple(column[kind] for column in columns) for kind in kinds})


def _loaded(file: Path, *, exact: bool) -> Target:
    """As a build loads it, for one conversation."""
    spec = ModelSpec(file.stem, str(file), backend="llama_cpp", slots=1, warm=0, exact=exact)
    with in_huge_pages(PAGES_SECONDS):
        target = load(spec)
    with RowComparison(target) as comparison:
        alike = exact_rows({rows: comparison.equal(rows) for rows in WIDTHS})
    if exact and alike < UNLIMITED:
        target.limit_rows(alike)
    return target


def _column(targets: Mapping[str, Target], rows: int) -> dict[str, float]:
    """Seconds of a pass of ``rows`` rows by type: the median of what it took compared with ``USUAL``."""
    rounds = [
        {kind: timed(one, [chain(varied(one, 0, rows))]) for kind, one in targets.items()}
        for _ in range(ROUNDS + 1)
    ][1:]  # the first one builds graphs
    usual = median(found[USUAL] for found in rounds)
    return {
        kind: usual * median(found[kind] / found[USUAL] for found in rounds) for kind in targets
    }
