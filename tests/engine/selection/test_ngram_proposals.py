"""Proposals of arms that decline most rounds: taken where they bring more than the leader would."""

from collections import Counter

import pytest

from engine.selection.tuning import TUNING
from engine.statistics.pass_cost import PassCost
from tests.engine.selection.scripted import Scripted, auto_over, play


def test_a_free_arm_that_proposes_now_and_then_is_combined_with_one_that_always_does():
    lookup, model = Scripted(4, 1.0, every=3, proposes_rarely=True), Scripted(2, 1.5)
    auto = auto_over(lookup=lookup, model=model)
    counts = Counter(play(auto, 90)[0])
    assert counts["lookup"] >= 25
    assert counts["model"] >= 50


def test_the_better_of_two_proposals_is_taken_in_any_order():
    for names in (("good", "poor"), ("poor", "good")):
        worth = {"good": 4, "poor": 2}
        arms = {name: Scripted(worth[name], 1.0, proposes_rarely=True) for name in names}
        assert set(play(auto_over(**arms), 10)[0]) == {"good"}


@pytest.mark.parametrize(("over", "first"), [(0.98, "none"), (1.02, "lookup")])
def test_a_proposal_must_bring_more_than_its_rows(over, first):
    lookup = Scripted(4, 3.0, proposes_rarely=True, expects=2.0 * over)
    auto = auto_over(cost=PassCost({1: 1.0, 5: 3.0}), lookup=lookup)  # four rows: two tokens
    assert play(auto, 1)[0] == [first]


@pytest.mark.parametrize(("later", "first"), [(0.0, "none"), (1.0, "lookup")])
def test_a_proposal_that_does_not_pay_its_rows_is_made_for_what_it_lets_later_rounds_copy(
    later, first
):
    """Rows are dear: the start of a copy is short, and most of its gain comes in later rounds."""
    lookup = Scripted(4, 3.0, proposes_rarely=True, expects=1.9, later=later)
    auto = auto_over(cost=PassCost({1: 1.0, 5: 3.0}), lookup=lookup)
    assert play(auto, 1)[0] == [first]


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
