"""A row table as an earlier measurement on this machine would have left it."""

import json

from app.placement.row_table import measured_on
from app.settings import Settings

SECONDS = {
    "q4_k_m": [0.010, 0.020, 0.030], "iq4_nl": [0.008, 0.015, 0.020], "q4_0": [0.005, 0.010, 0.020],
}  # fmt: skip


def remember(settings: Settings, **changes) -> None:
    stored = {"machine": measured_on(settings), "seconds": SECONDS} | changes
    settings.home.mkdir(exist_ok=True)
    (settings.home / "file-types.json").write_text(json.dumps(stored))
