"""What every reply measured, and every load, and what of it helps the next one."""

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, astuple
from datetime import UTC, datetime, timedelta
from itertools import zip_longest
from sqlite3 import Connection
from typing import Any

from app.history.evidence import WINDOW, priors
from app.history.file import HistoryFile, references_checked
from app.history.records import (
    Conditions,
    Forgotten,
    MeasuredRun,
    Origin,
    Remembered,
    utc_now,
)
from engine.request import Calibration, DepthCount, DrafterRun, Prior, Stats

INSERT_REPLY = """
INSERT INTO replies(message, session, model, drafter, why, prompt_tokens, cached_tokens, emitted,
                    passes, drafted, accepted, prompt_seconds, decode_seconds, at,
                    draft, machine, temperature, task)
VALUES (:message, :session, :model, :drafter, :why, :prompt_tokens, :cached_tokens, :emitted,
        :passes, :drafted, :accepted, :prompt_seconds, :decode_seconds, :at,
        :draft, :machine, :temperature, :task)
"""

INSERT_RUN = """
INSERT INTO runs(reply, drafter, passes, emitted, drafted, accepted, seconds, plain_seconds,
                 depths, ranks, rank_weight)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""

# The newest replies of the same task and the newest of any: two short walks along two indexes.
RECENT_RUNS = f"""
WITH recent(id) AS (
    SELECT * FROM (SELECT id FROM replies WHERE model = :model AND draft = :draft AND temperature = :temperature
                   AND task = :task ORDER BY id DESC LIMIT {WINDOW})
    UNION
    SELECT * FROM (SELECT id FROM replies WHERE model = :model AND draft = :draft AND temperature = :temperature
                   ORDER BY id DESC LIMIT {WINDOW})
)
SELECT replies.id, julianday(:now) - julianday(replies.at), replies.task, replies.machine,
       runs.drafter, runs.passes, runs.emitted, runs.seconds, runs.plain_seconds,
       runs.depths, runs.ranks, runs.rank_weight
FROM recent JOIN replies USING (id) JOIN runs ON runs.reply = replies.id
"""  # noqa: S608 - the only thing put in is a number of ours

PUT_PRICES = """
INSERT INTO row_prices(model, prices, at) VALUES (?, ?, ?)
ON CONFLICT(model) DO UPDATE SET prices = excluded.prices, at = excluded.at
"""
KEPT = timedelta(days=30)  # of prices: a machine may have been busy at the first load

ALL_RUNS = """
SELECT replies.model, replies.draft, replies.machine, runs.drafter, replies.task,
       replies.temperature, runs.emitted, runs.seconds, runs.plain_seconds, runs.depths
FROM runs JOIN replies ON replies.id = runs.reply
WHERE :model IS NULL OR replies.model = :model
"""


class Measurements:
    """The figures of all replies; they outlive the words. May be called from any thread."""

    def __init__(self, file: HistoryFile) -> None:
        self._file = file

    def record(
        self,
        conditions: Conditions,
        stats: Stats,
        session: str | None = None,
        message: str | None = None,
    ) -> None:
        """Keep what one reply measured; ``message`` is the stored answer, if it was stored."""
        links = {"message": message, "session": session, "at": utc_now()}
        row = asdict(conditions) | links
        with references_checked(f"message {message!r}"), self._file.writing() as database:
            _insert(database, row, stats)

    def priors(self, conditions: Conditions) -> tuple[Prior, ...]:
        """What recent replies let expect of every drafter under these conditions."""
        rows = self._file.read(RECENT_RUNS, asdict(conditions) | {"now": utc_now()})
        return priors(map(_measured, rows), conditions)

    def remembered(self, model: str | None = None) -> list[Remembered]:
        """Everything stored of all drafters, or of those of one model, in a steady order."""
        return _grouped(self._file.read(ALL_RUNS, {"model": model}))

    def forget(self, model: str | None = None) -> Forgotten:
        """Delete the figures of all replies, or of one model's; conversations stay."""
        chosen, named = "WHERE :model IS NULL OR model = :model", {"model": model}
        with self._file.writing() as database:
            runs = database.execute(
                f"DELETE FROM runs WHERE reply IN (SELECT id FROM replies {chosen})",  # noqa: S608
                named,
            )
            replies = database.execute(f"DELETE FROM replies {chosen}", named)  # noqa: S608
            if model is None:
                database.execute("DELETE FROM row_prices")  # measured again at the next load
            return Forgotten(replies.rowcount, runs.rowcount)


class StoredCalibrations:
    """What was measured of models, by a key that changes with their files, the machine and settings; thread-safe."""

    def __init__(self, file: HistoryFile) -> None:
        self._file = file

    def of(self, key: str) -> Calibration | None:
        """What was measured lately; None where nothing was."""
        since = (datetime.now(UTC) - KEPT).isoformat(timespec="seconds")
        rows = self._file.read(
            "SELECT prices FROM row_prices WHERE model = ? AND at > ?", key, since
        )
        if not rows:
            return None
        seconds, *others = json.loads(rows[0][0])
        return Calibration(tuple((rows, each) for rows, each in seconds), *others)

    def put(self, key: str, calibration: Calibration) -> None:
        """Keep it, in place of an older one."""
        row = (key, json.dumps(astuple(calibration)), utc_now())
        with self._file.writing() as database:
            database.execute(PUT_PRICES, row)


def _insert(database: Connection, row: Mapping[str, object], stats: Stats) -> None:
    """A reply and its runs; ``row`` has the columns that ``stats`` do not know."""
    reply = database.execute(INSERT_REPLY, {**asdict(stats), **row}).lastrowid
    assert reply is not None
    database.executemany(INSERT_RUN, [_run_row(reply, run) for run in stats.runs])


def _run_row(reply: int, run: DrafterRun) -> tuple[Any, ...]:
    counts = [d.evaluated for d in run.depths], [d.accepted for d in run.depths]
    return (
        reply, run.drafter, run.passes, run.emitted, run.drafted, run.accepted, run.seconds,
        run.plain_seconds, json.dumps(counts), json.dumps(run.shares), run.share_weight,
    )  # fmt: skip


def _measured(row: tuple[Any, ...]) -> MeasuredRun:
    """A row of ``RECENT_RUNS``: the fields in their order."""
    *plain, depths, shares, share_weight = row
    return MeasuredRun(*[*plain, *json.loads(depths), json.loads(shares), share_weight])


def _grouped(rows: Iterable[tuple[Any, ...]]) -> list[Remembered]:
    """Rows of ``ALL_RUNS``, those under the same conditions added up."""
    groups: dict[Origin, list[tuple[Any, ...]]] = defaultdict(list)
    for row in rows:
        groups[Origin(*row[:6])].append(row[6:])
    return [_added(origin, groups[origin]) for origin in sorted(groups)]


def _added(origin: Origin, rows: list[tuple[Any, ...]]) -> Remembered:
    emitted, seconds, plain_seconds, counted = zip(*rows, strict=True)
    rows_of_depths = [json.loads(both) for both in counted]
    evaluated = _column_sums(both[0] for both in rows_of_depths)
    accepted = _column_sums(both[1] for both in rows_of_depths)
    return Remembered(
        origin=origin,
        replies=len(rows),
        emitted=sum(emitted),
        seconds=sum(seconds),
        plain_seconds=sum(plain_seconds),
        depths=tuple(map(DepthCount, evaluated, accepted)),
    )


def _column_sums(rows: Iterable[Sequence[int]]) -> list[int]:
    return [sum(column) for column in zip_longest(*rows, fillvalue=0)]
