"""What passes of a model cost on this machine, kept so that the next start need not measure it."""

import json
from datetime import UTC, datetime, timedelta

from app.history.file import HistoryFile
from app.history.records import utc_now
from engine.request import RowPrices

KEPT = timedelta(
    days=30
)  # then they are measured again: a machine may have been busy the first time

PUT = """
INSERT INTO row_prices(model, prices, at) VALUES (?, ?, ?)
ON CONFLICT(model) DO UPDATE SET prices = excluded.prices, at = excluded.at
"""


class StoredPrices:
    """Prices by a key that changes with the model's files, the machine and the settings; thread-safe."""

    def __init__(self, file: HistoryFile) -> None:
        self._file = file

    def of(self, key: str) -> RowPrices | None:
        """What was measured lately; None where nothing was."""
        since = (datetime.now(UTC) - KEPT).isoformat(timespec="seconds")
        rows = self._file.read(
            "SELECT prices FROM row_prices WHERE model = ? AND at > ?", key, since
        )
        if not rows:
            return None
        seconds, per_context = json.loads(rows[0][0])
        return RowPrices(tuple((rows, each) for rows, each in seconds), per_context)

    def put(self, key: str, prices: RowPrices) -> None:
        """Keep them, in place of older ones."""
        row = (key, json.dumps([prices.seconds, prices.per_context]), utc_now())
        with self._file.writing() as database:
            database.execute(PUT, row)
