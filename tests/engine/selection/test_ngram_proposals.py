"""Proposals of arms that decline: they draft where that is more than what else would run brings."""

from collections import Counter
from dataclasses import replace

import pytest

from engine.interfaces.drafter import Context
from engine.request import Prior, SamplingParams
from engine.selection.ngram_proposals import MARGIN, REPRICED
from tests.engine.selection.scripted import ROOM, Reads, Scripted, auto_over, play


def test_a_free_arm_that_proposes_now_and_then_is_combined_with_one_that_always_does():
    lookup, model = Scripted(4, 1.0, every=3, proposes_rarely=True), Scripted(2, 1.5)
    auto = auto_over(lookup=lookup, model=model)
    counts = Counter(play(auto, 90)[0])
    assert counts["lookup"] >= 25
    assert counts["model"] >= 50


def test_tokens_to_come_are_not_as_cheap_as_those_of_a_text_that_was_just_copied():
    auto = auto_over()
    play(auto, 1)
    auto._matches[1].whole.add(30, 5.0)
    assert 1.5 < auto._matches[1].rate < 0.8 * auto._matches[1].whole.value


def test_what_one_kind_of_task_made_of_proposals_is_not_held_against_another():
    auto = auto_over(lookup=Scripted(0, 1.2, proposes_rarely=True, hoped=4.0))
    play(auto, 30, 1)
    edit = Context(2, 0, [1], SamplingParams(), None, task="edit")
    auto.draft([edit], [ROOM])
    assert auto._copies.luck[""]["lookup"].value < 0.9
    assert auto._copies.luck["edit"]["lookup"].value == 1.0


@pytest.mark.parametrize(("pace", "first"), [(None, "lookup"), (3.0, "lookup"), (0.7, "model")])
def test_copies_that_were_slow_in_earlier_sessions_have_to_promise_more_in_this_one(pace, first):
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


def test_of_two_proposals_the_better_one_is_taken_whoever_comes_first():
    for names in (("good", "poor"), ("poor", "good")):
        worth = {"good": 4, "poor": 2}
        arms = {name: Scripted(worth[name], 1.0, proposes_rarely=True) for name in names}
        assert set(play(auto_over(**arms), 10)[0]) == {"good"}


@pytest.mark.parametrize(("over", "first"), [(0.98, "none"), (1.02, "lookup")])
def test_a_proposal_must_bring_more_than_its_rows_and_the_margin(over, first):
    lookup = Scripted(4, 3.0, proposes_rarely=True, hoped=2.0 * MARGIN * over)
    auto = auto_over(lookup=lookup)
    auto._cost.reset({1: 1.0, 5: 3.0})  # four drafted rows are worth two tokens
    assert play(auto, 1)[0] == [first]


@pytest.mark.parametrize(("later", "first"), [(0.0, "none"), (1.0, "lookup")])
def test_a_proposal_that_does_not_pay_its_rows_is_made_for_what_it_finds_to_copy(later, first):
    """Rows are dear: what opens a copy is short, and most of what it brings comes in later rounds."""
    lookup = Scripted(4, 3.0, proposes_rarely=True, hoped=2.0, later=later)
    auto = auto_over(lookup=lookup)
    auto._cost.reset({1: 1.0, 5: 3.0})
    assert play(auto, 1)[0] == [first]


def test_who_promised_too_much_is_asked_at_a_higher_pace():
    seen = []

    class Noting(Scripted):
        def draft(self, batch, budgets):
            seen.extend(budgets)
            return super().draft(batch, budgets)

    auto = auto_over(lookup=Noting(0, 1.2, proposes_rarely=True, hoped=4.0))
    play(auto, 10)
    seen.clear()
    luck, rate = auto._copies.luck[""]["lookup"].value, auto._matches[1].rate
    play(auto, 1)
    assert luck < 1
    assert [budget.pace for budget in seen] == [pytest.approx(rate / luck)]


def test_what_is_held_against_an_arm_is_forgotten_while_it_proposes_nothing():
    lookup = Scripted(0, 1.2, proposes_rarely=True, hoped=4.0)
    auto = auto_over(lookup=lookup)
    play(auto, 30)
    before = auto._copies.luck[""]["lookup"].value
    lookup.every = 10**9
    play(auto, 1500)
    assert before < 0.9
    assert auto._copies.luck[""]["lookup"].value > 0.95


def test_rows_are_priced_anew_after_some_rounds():
    auto = auto_over(lookup=Scripted(4, 1.0, every=10**9, proposes_rarely=True))
    batch = [Context(1, 0, [1], SamplingParams(), None)]
    assert auto._copies._row_prices(batch).rows[-1] == 0
    auto._cost.reset({1: 1.0, 5: 3.0})
    later = [auto._copies._row_prices(batch).rows[-1] for _ in range(REPRICED)]
    assert set(later[:-1]) == {0.0}
    assert later[-1] == pytest.approx(2.0)
