"""A home with a past: figures of two models over some days, and a model that is worth planning."""

import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from app.history.store import History
from app.settings import Settings
from tests.app.history.replies import CHAT, EDIT, run, stats
from tests.app.models.library.places import wide_model

STRANGE = "large & <b>strange</b>"  # a name is text, whatever it looks like
WIDE = "wide"
DAYS = 3


def furnish(home: Path) -> None:
    """Put the past into ``home``."""
    settings = Settings(home=home)
    settings.models_folder.mkdir(parents=True)
    wide_model(settings.models_folder / WIDE)
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
