"""The plans of all models at once, on this machine or on one with other memory."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from app.errors import AppError
from app.models.catalog import CatalogEntry, load_catalog, resolve
from app.placement.plans import candidates, usable
from app.settings import Settings
from engine.errors import EngineError
from engine.hardware import published
from engine.hardware.footprint import LLAMA_CPP, TORCH
from engine.hardware.plan import Candidates, Plan, Refusal, Tier
from engine.hardware.planner import plan
from engine.hardware.profile import Gpu, HardwareProfile, Ram

PUBLISHED = tuple(published.MODELS)
_IMAGINED_GPU = "an imagined GPU"


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes of a machine; None is what this one has."""

    gpu: int | None = None
    ram: int | None = None

    @property
    def here(self) -> bool:
        """Whether nothing is imagined."""
        return self.gpu is None and self.ram is None


@dataclass(frozen=True, slots=True)
class Planned:
    """One model: its plan or refusal, or else a sentence that says why it has neither."""

    name: str
    found: Plan | Refusal | None
    note: str = ""


def machine_with(profile: HardwareProfile, memory: Memory) -> HardwareProfile:
    """This machine with other memory: what other programs take now, they take there, too."""
    changed = profile
    if memory.ram is not None:
        taken = profile.ram.total - profile.ram.available
        changed = replace(changed, ram=Ram(memory.ram, max(0, memory.ram - taken), "imagined"))
    if memory.gpu is not None:
        gpu = Gpu(_IMAGINED_GPU, memory.gpu, memory.gpu)
        changed = replace(changed, gpus=(gpu,) if memory.gpu else ())
    return changed


def without(profile: HardwareProfile, loaded: Plan | None) -> HardwareProfile:
    """This machine once the loaded model has gone: another one is loaded in its place."""
    if loaded is None:
        return profile
    ram = profile.ram
    available = min(ram.total, ram.available + loaded.needed(Tier.RAM))
    gpus = tuple(
        replace(gpu, free=min(gpu.total, gpu.free + loaded.needed(Tier.DEVICE)))
        if gpu == profile.gpu
        else gpu
        for gpu in profile.gpus
    )
    return replace(profile, ram=replace(ram, available=available), gpus=gpus)


class SimulatedPlans:
    """The models whose plans are shown, their files' headers read once."""

    def __init__(self, known: Mapping[str, Candidates | Planned]) -> None:
        self._known = known

    @classmethod
    def read(cls, settings: Settings) -> "SimulatedPlans":
        """All that are here, but drafts that only draft."""
        here = (one for one in load_catalog(settings) if one.visible and one.folder is not None)
        return cls({entry.name: _read(settings, entry) for entry in here})

    def plans(self, profile: HardwareProfile, memory: Memory) -> list[Planned]:
        """In the order of the catalogue; a GPU that is imagined has software that uses it."""
        return [
            known if isinstance(known, Planned) else _planned(known, profile, memory)
            for known in self._known.values()
        ]


def published_plan(name: str, profile: HardwareProfile, memory: Memory) -> Planned:
    """One of ``PUBLISHED``, whose files need not be here."""
    return _planned(published.candidates(name), profile, memory)


def _planned(model: Candidates, profile: HardwareProfile, memory: Memory) -> Planned:
    machine = machine_with(profile, memory)
    backends = {form.backend for form in model.forms}
    if memory.gpu is None and len(backends) == 1:
        machine = usable(machine, backends.pop())
    try:
        return Planned(model.model, plan(machine, model))
    except EngineError as error:
        return Planned(model.model, None, str(error))


def _read(settings: Settings, entry: CatalogEntry) -> Candidates | Planned:
    try:
        spec = resolve(settings, entry.name)
        if spec.backend not in {TORCH, LLAMA_CPP}:
            note = (
                "this family is loaded whole, into RAM, by transformers: there is nothing to plan"
            )
            return Planned(entry.name, None, note)
        return candidates(spec)
    except (AppError, EngineError, OSError) as error:
        return Planned(entry.name, None, str(error))
