"""Shelf: what models are here, elsewhere on this machine, and to be had, read at one moment."""

from dataclasses import dataclass

from app.models.catalog import load_catalog
from app.models.hub.token import read_token
from app.models.library.fit import Fit, best, fits
from app.models.library.installed import Installed, installed_models
from app.models.library.other_programs import ForeignModel, found_models
from app.models.library.simulation import without
from app.placement.machine_profile import known_profile
from app.settings import Settings
from engine.hardware.plan import Plan


@dataclass(frozen=True, slots=True)
class Inventory:
    """For the screen of models; nothing of it is asked of the network."""

    installed: tuple[Installed, ...]  # with drafts, but not those of the box
    elsewhere: tuple[ForeignModel, ...]  # of other programs
    offered: tuple[Fit, ...]  # in the catalogue, and not here
    suggested: Fit | None  # better than everything that is here
    token: bool  # whether one is kept or in the environment


def read_inventory(settings: Settings, loaded: Plan | None = None) -> Inventory:
    """Read the disk and look at the machine, as it is without the model that is ``loaded`` now."""
    here = installed_models(settings)
    folders = [model.entry.folder for model in here if model.entry.folder is not None]
    offered = fits(load_catalog(settings), without(known_profile(settings), loaded))
    return Inventory(
        installed=tuple(model for model in here if model.entry.visible or not model.bundled),
        elsewhere=found_models(settings.others, folders),
        offered=offered,
        suggested=_better(best(offered), here),
        token=read_token(settings) is not None,
    )


def suggestion(settings: Settings, loaded: Plan | None = None) -> Fit | None:
    """The best model for this machine that is not here; None where nothing better fits."""
    offered = fits(load_catalog(settings), without(known_profile(settings), loaded))
    return _better(best(offered), installed_models(settings))


def _better(chosen: Fit | None, here: tuple[Installed, ...]) -> Fit | None:
    most = max((model.entry.parameters or 0 for model in here), default=0)
    return chosen if chosen is not None and (chosen.entry.parameters or 0) > most else None
