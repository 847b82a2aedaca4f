"""System prompts and sampling that a person keeps under a name."""

import json

from app.errors import UnknownConversation
from app.history.file import HistoryFile
from app.history.records import Preset

PUT = """
INSERT INTO presets(name, system, options) VALUES (?, ?, ?)
ON CONFLICT(name) DO UPDATE SET system = excluded.system, options = excluded.options
"""


class Presets:
    """Kept in the history's file; may be called from any thread."""

    def __init__(self, file: HistoryFile) -> None:
        self._file = file

    def all(self) -> list[Preset]:
        """By name."""
        rows = self._file.read("SELECT name, system, options FROM presets ORDER BY name")
        return [Preset(name, system, json.loads(options)) for name, system, options in rows]

    def put(self, preset: Preset) -> None:
        """Keep a preset, in place of one with the same name."""
        with self._file.writing() as database:
            database.execute(PUT, (preset.name, preset.system, json.dumps(dict(preset.options))))

    def delete(self, name: str) -> None:
        """Forget a preset."""
        with self._file.writing() as database:
            gone = database.execute("DELETE FROM presets WHERE name = ?", (name,))
            if gone.rowcount != 1:
                raise UnknownConversation(f"history holds no preset {name!r}")
