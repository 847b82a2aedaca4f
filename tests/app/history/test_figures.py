"""Figures for people: the same sums as by another way, and conditions in the order they were seen."""

import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.history.figures import Sums, added_by
from app.history.store import History
from app.history.task_class import TaskClass, TemperatureClass
from tests.app.history.replies import CHAT, EDIT, run, stats

DEPTHS = st.lists(st.integers(1, 40), min_size=1, max_size=4).map(
    lambda counts: tuple((max(counts), low) for low in sorted(counts, reverse=True))
)
RUN = st.builds(run, st.sampled_from(["none", "lookup", "chain"]), DEPTHS, pace=st.floats(0.5, 4))
CONDITIONS = st.sampled_from([CHAT, EDIT, replace(CHAT, model="other", draft="")])


@settings(max_examples=15)  # every example makes a database on disk
@given(st.lists(st.tuples(CONDITIONS, RUN), max_size=12))
def test_cells_add_up_to_everything_that_was_recorded(replies):
    with tempfile.TemporaryDirectory() as folder:
        history = History.open(Path(folder) / "history.db")
        for conditions, one in replies:
            history.measurements.record(conditions, stats(runs=(one,)))
        cells = history.figures.cells()
        history.close()
    runs = [one for _, one in replies]
    for field in ("model", "drafter", "task", "day"):
        total = sum(added_by(cells, field).values(), Sums())
        assert total.runs == len(runs)
        assert total.emitted == sum(one.emitted for one in runs)
        assert total.seconds == pytest.approx(sum(one.seconds for one in runs))
        plain = sum(one.seconds if one.drafter == "none" else one.plain_seconds for one in runs)
        assert total.plain_seconds == pytest.approx(plain)
        assert total.evaluated == sum(depth.evaluated for one in runs for depth in one.depths)
        assert total.accepted == sum(depth.accepted for one in runs for depth in one.depths)


def test_each_field_keeps_its_values_apart(history):
    history.measurements.record(CHAT, stats(runs=(run("chain", pace=2.0), run("none", ()))))
    history.measurements.record(EDIT, stats(runs=(run("lookup", ((10, 9),), pace=3.0),)))
    cells = history.figures.cells()
    paces = {name: one.pace for name, one in added_by(cells, "drafter").items()}
    assert paces == {"chain": pytest.approx(2.0), "none": 1.0, "lookup": pytest.approx(3.0)}
    shares = {name: one.acceptance for name, one in added_by(cells, "drafter").items()}
    assert shares == {"chain": 24 / 35, "none": None, "lookup": 0.9}
    assert {name: one.runs for name, one in added_by(cells, "task").items()} == {
        "chat": 2,
        "edit": 1,
    }


def test_what_was_never_timed_has_no_pace():
    assert (Sums().rate, Sums().pace, Sums().acceptance) == (None, None, None)
    assert Sums(runs=1, emitted=5, seconds=1.0).pace is None


def test_conditions_are_seen_once_newest_first_on_their_newest_machine(history):
    hot = replace(CHAT, temperature=TemperatureClass.HOT)
    for conditions in (CHAT, hot, EDIT, replace(CHAT, machine="a newer one")):
        history.measurements.record(conditions, stats(runs=(run(),)))
    seen = history.figures.seen()
    assert seen == [replace(CHAT, machine="a newer one"), EDIT, hot]
    assert [one.task for one in seen] == [TaskClass.CHAT, TaskClass.EDIT, TaskClass.CHAT]
