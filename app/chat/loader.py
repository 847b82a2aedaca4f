"""How one program loads its models: with which chat templates, and how far a load is."""

import asyncio
import json
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from app.errors import HistoryError
from app.files import replace_file
from app.history.measurements import StoredCalibrations
from app.text.named_templates import TEMPLATES
from app.worker.worker import EngineWorker
from engine.hardware.limits import resident
from engine.request import Calibration

log = logging.getLogger(__name__)

NAME = "chat-templates.json"  # what a person chose for base models
PROGRESS_SECONDS = 0.5  # between two looks at how far a load is


class ChosenTemplates:
    """Names of templates by a model's folder or file; an empty name: only continue texts."""

    def __init__(self, home: Path | None = None) -> None:
        """``home`` None keeps nothing."""
        self._file = None if home is None else home / NAME
        self._now: dict[str, str] = {}  # chosen in this process

    def of(self, place: str, given: str) -> str:
        """What to load ``place`` with: what was chosen here, else ``given``, else what was kept."""
        if place in self._now:
            return self._now[place]
        return given or self._kept().get(place, "")

    def choose(self, place: str, name: str) -> None:
        """Keep a choice; where it cannot be written, it holds until the end of the process."""
        self._now[place] = name
        if self._file is None:
            return
        try:
            replace_file(self._file, json.dumps({**self._kept(), place: name}, indent=1))
        except OSError:
            log.exception("the choice of a chat template is not kept")

    def _kept(self) -> dict[str, str]:
        """Without what is damaged, or is no template's name any more."""
        try:
            found = {} if self._file is None else json.loads(self._file.read_text("utf-8"))
        except (OSError, ValueError, RecursionError):
            return {}
        kept = found.items() if isinstance(found, dict) else ()
        return {place: name for place, name in kept if name == "" or name in [*TEMPLATES]}


@dataclass(slots=True)
class Loader:
    """How one program loads its models, and how far the load is that runs now."""

    kept: StoredCalibrations | None = None  # what earlier loads measured is not measured again
    templates: ChosenTemplates = field(default_factory=ChosenTemplates)
    serving: bool = False  # what can wait is measured when nobody asks anything
    worker: EngineWorker | None = None  # that loads
    weights: int = 0  # bytes of its files

    @property
    def share(self) -> float:
        """Of the weights, as much as is in memory by now; libraries count, too. 0 where nobody knows."""
        pid = self.worker.pid if self.worker else None
        return min(resident(pid) / max(self.weights, 1), 1.0) if pid else 0.0

    async def tell(self, changed: Callable[[], object]) -> None:
        """Call ``changed`` whenever the share is another one; until this is cancelled."""
        told = 0.0
        while True:
            await asyncio.sleep(PROGRESS_SECONDS)
            if (share := self.share) != told:
                told = share
                changed()

    def keep(self, key: str, calibration: Calibration) -> None:
        """Store what was measured; without it the next load measures again."""
        if self.kept is None:
            return
        try:
            self.kept.put(key, calibration)
        except HistoryError:
            log.exception("what was measured of a model is not kept")
