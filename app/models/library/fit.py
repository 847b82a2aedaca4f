"""Fit: whether a model that is not here would run on this machine, and how; before a download."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from math import floor, log2

from app.models.catalog import CatalogEntry
from app.models.downloads.partial_file import shown_bytes
from app.models.downloads.staging import RESERVE
from app.placement.plans import FORMS, usable
from engine.errors import EngineError
from engine.hardware.candidates import MOST_TAKEN, SCORED_ROWS, USEFUL
from engine.hardware.checkpoint_sizes import Size, Stored
from engine.hardware.footprint import CUDA, LLAMA_CPP, Footprint, llama_footprint, torch_footprint
from engine.hardware.layers import drafting_weights, idle_weights, looked_up_weights
from engine.hardware.plan import Candidates, Plan, Refusal, Stage, Tier
from engine.hardware.planner import plan
from engine.hardware.profile import HardwareProfile
from engine.hardware.published import FP16, weights
from engine.hardware.reasons import gib
from engine.hardware.shape import ModelShape
from engine.models.gguf.state_shape import StateShape

WHOLE = frozenset({Stage.DEVICE, Stage.RAM})  # every weight in one memory
READABLE = 8.0  # tokens per second before drafting: what people read, after some reasoning
USUAL_RATE = 30e9  # bytes/s of RAM where nothing was measured: two channels of DDR4
USUAL_GPU_RATE = 200e9
MIXTURE = (
    0.6  # how far a mixture's weights count for all of them, and not for those that a token reads
)


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
    speed: float | None = None  # tokens per second that memory allows before drafting
    measured: bool = False  # on this machine; else ``speed`` is that of usual memory
    useful: bool = False  # a conversation of ``USEFUL`` tokens leaves other programs their share

    @property
    def rate(self) -> float | None:
        """``speed``, where the machine's memory was measured."""
        return self.speed if self.measured else None

    @property
    def whole(self) -> bool:
        """Whether it lies in one memory, or only experts, of which a token reads few, in another."""
        return self.runs if self.planned is None else _whole(self.planned)

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
    """Of the most able all-round models that run well, the fastest; None where none does.

    To run well is to have room for a useful conversation and to be fast enough to read along.
    """
    good = [fit for fit in offered if fit.entry.all_round and not fit.entry.gated and _good(fit)]
    return max(good, key=lambda fit: (size_class(fit.entry), fit.speed or 0), default=None)


def size_class(entry: CatalogEntry) -> int:
    """Models of one class are about equally able: a class spans a factor of the square root of two."""
    return floor(2 * log2(ability(entry)))


def ability(entry: CatalogEntry) -> float:
    """Billions of weights of a dense model that is about as able.

    A mixture is between all of its weights and those that a token reads.
    """
    total, shape = entry.parameters or 1, entry.shape
    used = total - (looked_up_weights(shape) if shape else 0)
    read = total - (idle_weights(shape) if shape else 0)
    return float(used**MIXTURE * read ** (1 - MIXTURE) / 1e9)


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
    fit = Fit(size, found, entry, missing, profile.disk_free)
    if not (isinstance(found, Plan) and _whole(found)):
        return fit  # nothing is promised for weights on their way
    form = _form(found, model)
    rates = _rates(found, profile)
    seconds = [
        read / (rate or usual)
        for read, (rate, usual) in zip(form.token_reads(found.cpu_experts), rates, strict=True)
    ]
    return replace(
        fit,
        speed=1 / sum(seconds),
        measured=all(rate for rate, _ in rates),
        useful=_leaves_room(found, form),
    )


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
    outside = (held.embedding, held.head, held.rest, held.tables)
    return Stored(layers, *map(share, outside))


def _whole(found: Plan) -> bool:
    return found.stage in WHOLE or found.cpu_experts > 0


def _rates(found: Plan, profile: HardwareProfile) -> tuple[tuple[float | None, float], ...]:
    """Bytes per second, measured and usual, of the memory where passes run and of that for experts."""
    ram = (profile.rates.memory, USUAL_RATE)
    gpu = (profile.gpu.copy_rate if profile.gpu else None, USUAL_GPU_RATE)
    return (gpu if found.device == CUDA else ram, ram if found.cpu_experts else (1.0, 1.0))


def _form(found: Plan, model: Candidates) -> Footprint:
    form = next(
        form
        for form in model.forms
        if (form.backend, form.dtype) == (found.backend, found.dtype)
        and found.device in form.devices
    )
    return form.narrow if found.windowed and form.narrow else form


def _good(fit: Fit) -> bool:
    return fit.useful and fit.storable and (fit.speed or 0) >= READABLE


def _leaves_room(found: Plan, form: Footprint) -> bool:
    """Whether there is room for a useful conversation, and it leaves other programs their share."""
    least = min(USEFUL - SCORED_ROWS, form.context)
    room, taken = dict(found.room), dict.fromkeys(Tier, 0)
    scaled = {"keys and values": form.cache(least, SCORED_ROWS, 1), "checkpoints": form.aside}
    for need in found.needs:
        taken[need.tier] += scaled.get(need.what, need.bytes)
    # with experts in RAM, as many of them are on the GPU as it has room for
    shares = {Tier.DEVICE: 1.0} if found.cpu_experts else {}
    return found.context >= least and all(
        taken[tier] <= most * room[tier] for tier, most in (MOST_TAKEN | shares).items()
    )


def no_room(fit: Fit) -> str:
    """What the disk lacks, as one sentence."""
    return (
        f"The download takes {shown_bytes(fit.size)} and {shown_bytes(RESERVE)} stay free; "
        f"the disk has {shown_bytes(fit.room)}."
    )
