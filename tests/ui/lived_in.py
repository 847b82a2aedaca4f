"""A home with a past: figures of two models over some days, and a model that is worth planning."""

import json
import shutil
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from app.history.store import History
from app.models.catalog import ModelRecord
from app.settings import Settings
from tests.app.history.replies import CHAT, EDIT, run, stats
from tests.ui.application import ROOT

STRANGE = "large & <b>strange</b>"  # a name is text, whatever it looks like
WIDE = "wide"
DAYS = 3


def furnish(home: Path) -> None:
    """Put the past into ``home``."""
    settings = Settings(home=home)
    settings.models_folder.mkdir(parents=True)
    _wide(settings.models_folder / WIDE)
    history = History.open(settings.database)
    for _ in range(DAYS):
        runs = (run("sequoia", pace=2.5), run("lookup", ((10, 9),), pace=1.5), run("none", ()))
        history.measurements.record(CHAT, stats(runs=runs))
        history.measurements.record(EDIT, stats(runs=(run("lookup", pace=3.0),)))
        other = replace(CHAT, model=STRANGE, draft="")
        history.measurements.record(other, stats(runs=(run("early_exit", pace=1.25),)))
    history.close()
    with closing(sqlite3.connect(settings.database, isolation_level=None)) as database:
        database.execute("UPDATE replies SET at = datetime(at, '-' || ((id - 1) / 3) || ' days')")


def _wide(folder: Path) -> None:
    """Half a gigabyte by its headers; the file is a hole."""
    shutil.copytree(ROOT / "engine/bundled/pocket", folder)
    entry = {"dtype": "F32", "shape": [2**27], "data_offsets": [0, 2**29]}
    header = json.dumps({"extra": entry}).encode()
    with (folder / "more.safetensors").open("wb") as file:
        file.write(len(header).to_bytes(8, "little") + header)
        file.truncate(8 + len(header) + 2**29)
    ModelRecord(WIDE, "a test").write(folder)
