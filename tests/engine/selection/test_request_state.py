"""Match: what one answer knows of its arms, and what it may bet on a proposal."""

import pytest

from engine.request import PLAIN
from engine.selection.request_state import BY_COPIES, STAKE, RequestState, TaskStats
from engine.statistics.speedup import CopyShare, Speedup


def match(**fields):
    paces = {PLAIN: Speedup(1.0, 1.0, 10**6), "model": Speedup(20.0, 10.0, 50)}
    return RequestState(
        paces,
        Speedup(30.0, 10.0, 10),
        {"model": 3.0, "tree": 3.0},
        TaskStats({}, CopyShare()),
        **fields,
    )


def test_an_answer_that_lost_may_still_bet_a_pass():
    one = match(playing="model")
    one.count(1, 6.0, copied=False)
    assert one.won == -5.0
    assert one.stake == STAKE


def test_plain_rounds_win_and_lose_nothing_whatever_they_took():
    one = match()
    one.count(1, 4.0, copied=False)
    one.count(1, 0.2, copied=False)
    assert one.won == 0.0
    assert one.emitted == 2


def test_once_one_arm_read_the_prompt_nobody_has_to_as_they_share_a_draft_model():
    one = match(playing="lookup")
    assert one.first_read()
    assert one.reading == {"model": 3.0, "tree": 3.0}  # who reads nothing saves nobody anything
    one.playing = "model"
    assert one.first_read()
    assert one.reading == {}
    assert not one.first_read()


@pytest.mark.parametrize(("favourite", "whole"), [(PLAIN, 3.0), ("model", 3.0), ("model", 9.0)])
def test_tokens_come_at_the_best_of_plain_the_favourite_and_half_of_what_copies_add(
    favourite, whole
):
    one = match(favourite=favourite)
    one.whole = Speedup(whole, 1.0, 10)
    best = {PLAIN: 1.0, "model": 2.0}[favourite]
    assert one.rate == pytest.approx(max(best, 1 + BY_COPIES * (whole - 1)))
