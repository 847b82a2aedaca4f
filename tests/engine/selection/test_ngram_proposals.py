"""Proposals of arms that decline most rounds: taken where they bring more than the leader would."""

from collections import Counter
from dataclasses import replace

import pytest

from engine.request import Prior
from engine.selection.ngram_proposals import Calibration
from engine.selection.tuning import TUNING
from engine.statistics.pass_cost import PassCost
from tests.engine.selection.scripted import Reads, Scripted, auto_over, play


def test_a_free_arm_that_proposes_now_and_then_is_combined_with_one_that_always_does():
    lookup, model = Scripted(4, 1.0, every=3, proposes_rarely=True), Scripted(2, 1.5)
    auto = auto_over(lookup=lookup, model=model)
    counts = Counter(play(auto, 90)[0])
    assert counts["lookup"] >= 25
    assert counts["model"] >= 50


@pytest.mark.parametrize(("pace", "first"), [(None, "lookup"), (3.0, "lookup"), (0.7, "model")])
def test_copies_that_were_slow_in_earlier_sessions_must_expect_more_in_this_one(pace, first):
    class Boasting(Scripted):
        def draft(self, batch, budgets):
            return [replace(tree, expected=2.5) for tree in super().draft(batch, budgets)]

    auto = auto_over(lookup=Boasting(0, 1.0, proposes_rarely=True), model=Scripted(3, 1.5))
    known = {"model": 2.6} if pace is None else {"model": 2.6, "lookup": pace}
    priors = {name: Prior(name, pace=it, pace_weight=20.0) for name, it in known.items()}
    assert play(auto, 1, priors=priors)[0] == [first]


def test_no_prompt_is_read_for_tokens_that_will_be_copied():
    never = 10**9
    lookup = Scripted(4, 1.0, every=never, proposes_rarely=True)
    auto = auto_over(lookup=lookup, model=Reads(2, 1.5, prompt=4.0))
    play(auto, 100)
    assert play(auto, 8, request=2)[0] == ["model"] * 8
    lookup.every = 1
    assert set(play(auto, 100, request=3)[0]) == {"lookup"}
    lookup.every = never
    assert play(auto, 8, request=4)[0] == ["none"] * 8
    play(auto, 600, request=5)  # answers of this kind are not copied any more
    assert play(auto, 8, request=6)[0] == ["model"] * 8


def test_the_better_of_two_proposals_is_taken_in_any_order():
    for names in (("good", "poor"), ("poor", "good")):
        worth = {"good": 4, "poor": 2}
        arms = {name: Scripted(worth[name], 1.0, proposes_rarely=True) for name in names}
        assert set(play(auto_over(**arms), 10)[0]) == {"good"}


@pytest.mark.parametrize(("over", "first"), [(0.98, "none"), (1.02, "lookup")])
def test_a_proposal_must_bring_more_than_its_rows_and_the_margin(over, first):
    lookup = Scripted(4, 3.0, proposes_rarely=True, expects=2.0 * TUNING.margin * over)
    auto = auto_over(cost=PassCost({1: 1.0, 5: 3.0}), lookup=lookup)  # four rows: two tokens
    assert play(auto, 1)[0] == [first]


@pytest.mark.parametrize(("later", "first"), [(0.0, "none"), (1.0, "lookup")])
def test_a_proposal_that_does_not_pay_its_rows_is_made_for_what_it_lets_later_rounds_copy(
    later, first
):
    """Rows are dear: the start of a copy is short, and most of its gain comes in later rounds."""
    lookup = Scripted(4, 3.0, proposes_rarely=True, expects=2.0, later=later)
    auto = auto_over(cost=PassCost({1: 1.0, 5: 3.0}), lookup=lookup)
    assert play(auto, 1)[0] == [first]


class Noting(Scripted):
    """Keeps the speedups that its budgets were priced at."""

    def draft(self, batch, budgets):
        self.paces = [budget.pace for budget in budgets]
        return super().draft(batch, budgets)


def test_an_arm_that_expected_too_much_gets_higher_prices_until_that_is_forgotten():
    lookup = Noting(0, 1.2, proposes_rarely=True, expects=4.0)
    auto = auto_over(lookup=lookup)
    play(auto, 1)
    assert lookup.paces == [1.0]
    play(auto, 30)
    assert lookup.paces[0] > 1.1
    play(auto, 1, request=2, task="edit")
    assert lookup.paces == [1.0]  # another kind of task
    lookup.every = 10**9
    play(auto, 1500)
    assert lookup.paces[0] < 1.05


def test_rows_are_priced_again_after_some_rounds():
    class Priced(Scripted):
        def draft(self, batch, budgets):
            self.seen = [*getattr(self, "seen", []), budgets[0].prices[-1]]
            return super().draft(batch, budgets)

    lookup, cost = Priced(4, 1.0, every=10**9, proposes_rarely=True), PassCost({1: 1.0, 5: 1.0})
    auto = auto_over(cost=cost, lookup=lookup)
    play(auto, 1)
    cost.reset({1: 1.0, 5: 3.0})
    play(auto, TUNING.price_rounds)
    assert lookup.seen[:-1] == [0.0] * TUNING.price_rounds
    assert lookup.seen[-1] == pytest.approx(2.0)


# How far an arm's own expectations are trusted.


def test_an_arm_that_expects_too_little_is_not_corrected():
    calibration = Calibration()
    calibration.add(9.0, 1.0)
    assert calibration.value == 1.0
    calibration.add(0.0, 90.0)
    assert calibration.value < 0.3


def test_earlier_sessions_never_make_an_expectation_larger():
    calibration = Calibration()
    calibration.start_from(3.0)
    assert calibration.value == 1.0
    calibration.start_from(0.5)
    assert calibration.value == pytest.approx(0.5)
