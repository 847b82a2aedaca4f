"""What one answer knows of its arms, and what it may lose on a proposal."""

import pytest

from engine.request import PLAIN
from engine.selection.request_state import RequestState, TaskStats
from engine.selection.tuning import TUNING
from engine.statistics.decayed import Decayed
from engine.statistics.speedup import Speedup


def state(**fields):
    speedups = {PLAIN: Speedup(1.0, 1.0, 10**6), "model": Speedup(20.0, 10.0, 50)}
    return RequestState(
        speedups,
        Speedup(30.0, 10.0, 10),
        {"model": 3.0, "tree": 3.0},
        TaskStats({}, Decayed(1.0, 1.0)),
        **fields,
    )


def test_an_answer_that_lost_may_still_risk_a_pass():
    one = state(arm="model")
    one.count(1, 6.0, copied=False)
    assert one.saved == -5.0
    assert one.risk_budget == TUNING.risk


def test_plain_rounds_save_and_lose_nothing_whatever_they_took():
    one = state()
    one.count(1, 4.0, copied=False)
    one.count(1, 0.2, copied=False)
    assert one.saved == 0.0
    assert one.emitted == 2


def test_once_one_arm_read_the_prompt_no_other_has_to_as_they_share_a_draft_model():
    one = state(arm="lookup")
    assert one.first_draft()
    assert one.reading == {"model": 3.0, "tree": 3.0}
    one.arm = "model"
    assert one.first_draft()
    assert one.reading == {}
    assert not one.first_draft()


@pytest.mark.parametrize(("leader", "overall"), [(PLAIN, 3.0), ("model", 3.0), ("model", 9.0)])
def test_the_baseline_is_the_best_of_plain_the_leader_and_half_of_what_copies_add(leader, overall):
    one = state(leader=leader)
    one.overall = Speedup(overall, 1.0, 10)
    best = {PLAIN: 1.0, "model": 2.0}[leader]
    assert one.baseline == pytest.approx(max(best, 1 + TUNING.copy_share * (overall - 1)))
