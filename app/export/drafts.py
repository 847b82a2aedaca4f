"""Which draft goes along: one that was published for the model, or what was best on this machine."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from operator import attrgetter

from app.export.serving import Draft, ExportRefused, Kind, Weights
from app.history.records import Remembered
from app.models.catalog import CatalogEntry
from engine.drafters import describe
from engine.request import DepthCount, summed

_WITHOUT_WEIGHTS = (Kind.NGRAM, Kind.SUFFIX)  # go along where they were measured or are asked for
_EVEN = 0.5  # a token deeper than this share of drafts gets is lost more often than kept


def drafts_of(
    entry: CatalogEntry, paired: Weights | None, measured: Iterable[Remembered]
) -> Iterator[Draft]:
    """Drafts that can go along, the first choice first; ``paired`` is the model that drafts for it."""
    yield from _published(entry)
    best = _best(measured)
    if best is not None:
        kind, pace, depths = best
        if kind is not Kind.MODEL or paired is not None:
            weights = paired if kind is Kind.MODEL else None
            origin = f"measured here at {pace:.2f} times plain decoding"
            yield Draft(kind, weights, depth_worth(depths), origin)
    if paired is not None:
        yield Draft(Kind.MODEL, paired, origin="the catalogue pairs them; nothing was measured")


def asked_for(kind: Kind, known: Sequence[Draft]) -> Draft:
    """The draft of that kind, measured or not. Raises ExportRefused where its weights are not known."""
    found = next((draft for draft in known if draft.kind is kind), None)
    if found is None and kind in _WITHOUT_WEIGHTS:
        return Draft(kind, origin="as asked; it was not measured here")
    if found is None:
        names = ", ".join(dict.fromkeys(str(draft.kind) for draft in known)) or "none"
        raise ExportRefused(f"no {kind} is known for this model; known: {names}")
    return found


def _published(entry: CatalogEntry) -> Iterator[Draft]:
    kinds = {str(kind): kind for kind in Kind}
    for one in entry.drafts:
        if one.kind in kinds:
            weights = Weights(one.repo) if one.repo else None
            where = f"in {one.repo}" if one.repo else "in its own files"
            yield Draft(kinds[one.kind], weights, origin=f"published for this model, {where}")


def _best(measured: Iterable[Remembered]) -> tuple[Kind, float, tuple[DepthCount, ...]] | None:
    """The kind that was fastest, if it was faster than plain decoding: with its pace and depths."""
    kinds = {str(kind): kind for kind in Kind}
    drafter = attrgetter("origin.drafter")
    found = []
    for name, group in groupby(sorted(measured, key=drafter), key=drafter):
        rows = [*group]
        kind, seconds = kinds.get(describe(name).elsewhere), sum(row.seconds for row in rows)
        pace = sum(row.plain_seconds for row in rows) / seconds if seconds > 0 else 0.0
        if kind is not None and pace > 1:
            found.append((kind, pace, summed([row.depths for row in rows])))
    return max(found, key=lambda one: one[1], default=None)


def depth_worth(depths: Sequence[DepthCount]) -> int | None:
    """The deepest place that is still accepted in at least half of the drafts; None without any."""
    if not depths or not depths[0].evaluated:
        return None
    kept = [one.accepted / depths[0].evaluated >= _EVEN for one in depths]
    return max(1, kept.index(False) if False in kept else len(kept))
