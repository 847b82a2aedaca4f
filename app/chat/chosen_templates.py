"""The chat templates that a person chose on the page for base models, kept over restarts."""

import json
import logging
from pathlib import Path

from app.files import replace_file
from app.text.named_templates import TEMPLATES

NAME = "chat-templates.json"

log = logging.getLogger(__name__)


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
