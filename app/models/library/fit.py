"""Fit: whether a model that is not here would run on this machine, and how; before a download."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec

from app.models.catalog import CatalogEntry
from app.models.downloads.partial_file import shown_bytes
from app.models.downloads.staging import RESERVE
from app.placement.plans import FORMS, usable
from engine.errors import EngineError
from engine.hardware.candidates import SCORED_ROWS, USEFUL
from engine.hardware.checkpoint_sizes import Size, Stored
from engine.hardware.footprint import LLAMA_CPP, Footprint, llama_footprint, torch_footprint
from engine.hardware.layers import drafting_weights, idle_weights
from engine.hardware.plan import Candidates, Plan, Refusal, Stage, Tier
from engine.hardware.planner import plan
from engine.hardware.profile import HardwareProfile
from engine.hardware.published import FP16, weights
from engine.hardware.reasons import gib
from engine.hardware.shape import ModelShape
from engine.models.gguf.state_shape import StateShape

WHOLE = frozenset({Stage.DEVICE, Stage.RAM})  # every weight in one memory
# Of the memory that is free, by a model that is recommended: other programs need RAM more than a GPU.
MOST_TAKEN = {Tier.RAM: 0.75, Tier.DEVICE: 0.9}
READABLE = 5.0  # tokens per second before drafting: what people read
USUAL_RATE = 20e9  # bytes/s of RAM where nothing was measured: one channel of DDR4
USUAL_GPU_RATE = 200e9


@dataclass(frozen=True, slots=True)
class Unplanned:
    """A model that the planner knows nothing of; ``fits`` is judged by its size alone."""

    fits: bool
    sentence: str


Found = Plan | Refusal | Unplanned


@dataclass(frozen=True, slots=True)
class Offer:
    """Something that could be downloaded, ``size`` in bytes, and how it would run here."""

    size: int  # with the draft where that is missing
    found: Found

    @property
    def runs(self) -> bool:
        """Whether it can be used here at all."""
        return self.found.fits if isinstance(self.found, Unplanned) else self.planned is not None

    @property
    def planned(self) -> Plan | None:
        """The plan, if it runs by one."""
        return self.found if isinstance(self.found, Plan) else None

    @property
    def where(self) -> str:
        """Where its weights would lie, or why it does not run. One sentence."""
        if isinstance(self.found, Plan):
            return self.found.reason("placement")
        return self.found.sentence


@dataclass(frozen=True, slots=True)
class Fit(Offer):
    """One model of the catalogue."""

    entry: CatalogEntry
    draft: CatalogEntry | None  # comes along
    room: int  # bytes that the disk has for models
    rate: float | None = None  # tokens per second that memory allows before drafting, if measured

    @property
    def whole(self) -> bool:
        """Whether it lies in one memory: nothing is read from a slower one for every token."""
        return self.runs if self.planned is None else self.planned.stage in WHOLE

    @property
    def storable(self) -> bool:
        """Whether the disk has room for the download."""
        return self.size + RESERVE <= self.room


def fits(
    catalog: Sequence[CatalogEntry], profile: HardwareProfile, *, elsewhere: bool = False
) -> tuple[Fit, ...]:
    """Every model that can be downloaded and is not here, on that machine, in catalogue order.

    A machine ``elsewhere`` has software that uses its GPU.
    """
    entries = {entry.name: entry for entry in catalog}
    wanted = (entry for entry in catalog if entry.repo is not None and entry.folder is None)
    return tuple(_fit(entry, entries, profile, elsewhere=elsewhere) for entry in wanted)


def best(offered: Sequence[Fit]) -> Fit | None:
    """The largest all-round model that lies in one memory and is fast enough to read along.

    One with room for a useful conversation comes before a larger one; of two with as many weights, the
    smaller file; None where nothing fits.
    """
    good = [fit for fit in offered if fit.entry.all_round and not fit.entry.gated and _good(fit)]
    return max(
        good, key=lambda fit: (_useful(fit), fit.entry.parameters or 0, -fit.size), default=None
    )


def shape_forms(name: str, shape: ModelShape, gguf_size: int | None) -> tuple[Footprint, ...]:
    """The forms of a model by its shape alone; ``gguf_size`` is that of its one file, if it is one."""
    held = weights(shape, FP16)
    if gguf_size is not None:
        loaded, stored = held.total.elements, held.total.elements + drafting_weights(shape)
        file = _scaled(held, gguf_size * loaded // stored)
        return (llama_footprint(name, shape, file, "as in the file"),)
    return tuple(torch_footprint(name, shape, held, dtype, device) for dtype, device in FORMS)


def by_shape(entry: CatalogEntry, draft: CatalogEntry | None) -> Candidates:
    """What the catalogue says of a model that has a shape there, for a plan without its files."""
    return Candidates(entry.name, _forms(entry), _forms(draft), entry.exit_layer)


def planned(model: Candidates, profile: HardwareProfile, *, elsewhere: bool = False) -> Found:
    """The planner's answer on that machine as the model's backend sees it."""
    backend = model.forms[0].backend
    if backend == LLAMA_CPP and find_spec("llama_cpp") is None:
        return Unplanned(
            fits=False, sentence="GGUF files need llama-cpp-python, which is not installed here."
        )
    try:
        return plan(profile if elsewhere else usable(profile, backend), model)
    except EngineError as error:
        return Unplanned(fits=False, sentence=str(error))


def by_size(size: int, profile: HardwareProfile) -> Unplanned:
    """For families that are loaded whole, and files of which nothing else is known."""
    free = profile.ram.available
    return Unplanned(
        size < free,
        f"{gib(size)} of weights are loaded whole into RAM; {gib(free)} are free.",
    )


def _fit(
    entry: CatalogEntry,
    entries: Mapping[str, CatalogEntry],
    profile: HardwareProfile,
    *,
    elsewhere: bool,
) -> Fit:
    draft = entries.get(entry.draft or "")
    missing = draft if draft is not None and draft.folder is None else None
    size = (entry.size or 0) + ((missing.size or 0) if missing else 0)
    if entry.shape is None:
        return Fit(size, by_size(entry.size or 0, profile), entry, missing, profile.disk_free)
    model = by_shape(entry, draft)
    found = planned(model, profile, elsewhere=elsewhere)
    rate = _rate(found, model, profile) if isinstance(found, Plan) else None
    rate = rate and rate / read_share(entry.shape)
    return Fit(size, found, entry, missing, profile.disk_free, rate)


def _forms(entry: CatalogEntry | None) -> tuple[Footprint, ...]:
    if entry is None or entry.shape is None:
        return ()
    if not entry.gguf:
        return shape_forms(entry.name, entry.shape, None)
    rollback = StateShape(0, entry.shape.state).rollback
    return shape_forms(entry.name, replace(entry.shape, rollback=rollback), entry.size)


def _scaled(held: Stored, size: int) -> Stored:
    """The same weights in a file of ``size`` bytes, each layer by its share."""
    total = held.total.elements

    def share(part: Size) -> Size:
        return Size(part.elements, size * part.elements // total)

    layers = tuple(map(share, held.layers))
    return Stored(layers, share(held.embedding), share(held.head), share(held.rest))


def read_share(shape: ModelShape) -> float:
    """Of all weights, what one token reads: not the experts that it passes by."""
    return 1 - idle_weights(shape) / weights(shape, FP16).total.elements


def _rate(found: Plan, model: Candidates, profile: HardwareProfile) -> float | None:
    """If a token read every weight once; nothing is promised for weights on their way."""
    if found.stage not in WHOLE:
        return None
    on_gpu = found.stage is Stage.DEVICE
    read = profile.gpu.copy_rate if on_gpu and profile.gpu else profile.rates.memory
    return read / _bytes(found, model) if read else None


def _bytes(found: Plan, model: Candidates) -> int:
    form = next(
        form
        for form in model.forms
        if (form.backend, form.dtype) == (found.backend, found.dtype)
        and found.device in form.devices
    )
    return form.weights


def _good(fit: Fit) -> bool:
    if fit.planned is None or not (fit.whole and fit.storable):
        return False
    if not _leaves_room(fit.planned):
        return False
    usual = USUAL_GPU_RATE if fit.planned.stage is Stage.DEVICE else USUAL_RATE
    read = (fit.entry.size or 1) * (read_share(fit.entry.shape) if fit.entry.shape else 1)
    return (fit.rate or usual / max(1, read)) >= READABLE


def _useful(fit: Fit) -> bool:
    context = fit.planned.context if fit.planned else 0
    return context >= min(USEFUL - SCORED_ROWS, fit.entry.context or USEFUL)


def _leaves_room(found: Plan) -> bool:
    """Whether a useful conversation leaves other programs their share of the memory."""
    home = Tier.DEVICE if found.stage is Stage.DEVICE else Tier.RAM
    share = min(1.0, USEFUL / (found.context * found.batch))
    needs = (need for need in found.needs if need.tier == home)
    taken = sum(n.bytes * share if n.what == "keys and values" else n.bytes for n in needs)
    return taken <= MOST_TAKEN[home] * dict(found.room)[home]


def no_room(fit: Fit) -> str:
    """What the disk lacks, as one sentence."""
    return (
        f"The download takes {shown_bytes(fit.size)} and {shown_bytes(RESERVE)} stay free; "
        f"the disk has {shown_bytes(fit.room)}."
    )
