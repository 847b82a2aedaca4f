"""What replies measured: sums, what comes back as priors, and forgetting."""

from dataclasses import asdict, replace

import numpy as np
import pytest

from app.history.evidence import LIFE_DAYS, WINDOW
from app.history.measurements import RECENT_RUNS
from app.history.records import Forgotten, Origin, utc_now
from app.history.task_class import TemperatureClass
from engine.request import DepthCount
from tests.app.history.replies import CHAT, EDIT, run, stats


def nearly(found: tuple[tuple[float, float], ...], counts: tuple[tuple[int, int], ...]) -> bool:
    """The same counts, but for the second or two that passed since they were written."""
    return np.allclose(found, counts, rtol=1e-3)


def test_figures_stay_when_the_conversation_is_deleted(history):
    chat = history.create_conversation("measured").id
    answer = history.add_message(chat, None, "assistant", "yes")
    history.measurements.record(CHAT, stats(runs=(run(),)), session="s", message=answer.id)
    history.delete(chat)
    assert len(history.measurements.remembered()) == 1
    assert [prior.drafter for prior in history.measurements.priors(CHAT)] == ["chain"]


def test_a_reply_comes_back_as_a_prior_of_each_of_its_drafters(history):
    chain = run("chain", ((20, 15), (15, 9)), pace=2.0)
    tree = run("specexec", ((10, 8), (8, 8)), pace=3.0, shares=(0.5, 0.25), share_weight=40.0)
    history.measurements.record(CHAT, stats(runs=(tree, chain)))
    first, second = history.measurements.priors(CHAT)
    assert (first.drafter, second.drafter) == ("chain", "specexec")
    assert nearly(first.depths, ((20, 15), (15, 9)))
    assert first.pace == pytest.approx(2.0)
    assert second.shares == pytest.approx((0.5, 0.25))
    assert second.share_weight == pytest.approx(40, rel=1e-3)
    assert first.shares == ()


@pytest.mark.parametrize(
    "changed",
    [{"model": "other"}, {"draft": "other-draft"}, {"temperature": TemperatureClass.HOT}],
)
def test_nothing_crosses_models_pairs_or_temperatures(history, changed):
    history.measurements.record(CHAT, stats(runs=(run(),)))
    assert history.measurements.priors(replace(CHAT, **changed)) == ()


def test_a_task_is_remembered_after_many_replies_of_another_task(history):
    history.measurements.record(EDIT, stats(runs=(run("lookup", ((30, 30),)),)))
    for _ in range(WINDOW + 5):
        history.measurements.record(CHAT, stats(runs=(run("lookup", ((30, 0),)),)))
    (prior,) = history.measurements.priors(EDIT)
    assert nearly(prior.depths, ((30, 30),))
    (other,) = history.measurements.priors(CHAT)
    assert other.depths[0][1] == 0


def test_a_drafter_that_is_not_chosen_any_more_is_unknown_again(history):
    """A bad start would else keep it from being tried for weeks."""
    history.measurements.record(CHAT, stats(runs=(run("chain", pace=0.5),)))
    for _ in range(WINDOW):
        history.measurements.record(CHAT, stats(runs=(run("lookup"),)))
    assert [prior.drafter for prior in history.measurements.priors(CHAT)] == ["lookup"]


def test_old_replies_expire(history, monkeypatch):
    now = "app.history.measurements.utc_now"
    monkeypatch.setattr(now, lambda: "2026-01-01T00:00:00+00:00")
    history.measurements.record(CHAT, stats(runs=(run(),)))
    (fresh,) = history.measurements.priors(CHAT)
    monkeypatch.setattr(now, lambda: "2026-01-16T00:00:00+00:00")
    (older,) = history.measurements.priors(CHAT)
    assert older.pace_weight == pytest.approx(fresh.pace_weight * (1 - 15 / LIFE_DAYS))
    monkeypatch.setattr(now, lambda: "2026-03-03T00:00:00+00:00")
    assert history.measurements.priors(CHAT) == ()
    monkeypatch.setattr(now, lambda: "2025-06-01T00:00:00+00:00")  # a clock that was set back
    assert history.measurements.priors(CHAT) == (fresh,)


def test_everything_remembered_is_listed_by_origin(history):
    for _ in range(2):
        history.measurements.record(CHAT, stats(runs=(run("chain", ((20, 15),)), run("lookup"))))
    history.measurements.record(EDIT, stats(runs=(run("chain", ((8, 2), (2, 2)), pace=4.0),)))
    history.measurements.record(replace(CHAT, model="other"), stats(runs=(run(),)))
    rows = history.measurements.remembered("pocket")
    assert [(row.origin.drafter, row.origin.task) for row in rows] == [
        ("chain", "chat"),
        ("chain", "edit"),
        ("lookup", "chat"),
    ]
    assert rows[0].origin == Origin(
        "pocket", "pocket-draft", CHAT.machine, "chain", "chat", "greedy"
    )
    assert (rows[0].replies, rows[0].emitted) == (2, 70)
    assert rows[0].depths == (DepthCount(40, 30),)
    assert rows[1].depths == (DepthCount(8, 2), DepthCount(2, 2))
    assert rows[1].pace == pytest.approx(4.0)
    assert len(history.measurements.remembered()) == 4


def test_forgetting_takes_the_figures_and_leaves_the_words(history, file):
    chat = history.create_conversation("kept").id
    answer = history.add_message(chat, None, "assistant", "yes")
    history.measurements.record(CHAT, stats(runs=(run(),)), "s", answer.id)
    history.measurements.record(
        replace(EDIT, model="other"), stats(runs=(run("chain"), run("lookup")))
    )
    assert history.measurements.forget("other") == Forgotten(replies=1, runs=2)
    assert history.measurements.forget("nobody") == Forgotten(0, 0)
    assert history.measurements.priors(CHAT)
    assert history.measurements.forget() == Forgotten(replies=1, runs=1)
    assert history.measurements.remembered() == []
    assert file.read("SELECT * FROM replies") == []
    assert history.messages(chat) == [answer]


def test_a_reply_starts_by_walking_along_indexes(file):
    """However much is stored, no step of the read looks at every row of a table, or sorts."""
    named = asdict(CHAT) | {"now": utc_now()}
    plan = file.read(f"EXPLAIN QUERY PLAN {RECENT_RUNS}", named)
    steps = " ".join(str(row[3]) for row in plan)
    assert not any(slow in steps for slow in ("SCAN replies", "SCAN runs", "ORDER BY"))
