"""Dynamic exit: what requests measure, when exits are tried again, and where a draft ends."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch

from engine.draft_length.dynamic_exit import ExitPool, ExitStop, RequestExits
from engine.draft_length.exit_counts import ExitCounts
from engine.draft_length.tuning import TUNING
from engine.interfaces.drafter import Budget, Outcome
from engine.interfaces.target import Scores
from engine.request import SamplingParams
from engine.speculation.tree import DraftTree, chain
from engine.speculation.verify import Verdict
from tests.engine.draft_length.exits import (
    GREEDY,
    LONGEST,
    Deep,
    context,
    counts,
    drafts,
    new,
    one_hot,
    rounds,
    units,
)
from tests.engine.tiny import tiny_target

RIGHT, WRONG = one_hot(1, 2, 0), one_hot(2, 0, 1)


def exits(layers=3):
    """A request of which nothing was measured."""
    return RequestExits(ExitPool(ExitCounts.empty(layers - 1)))


def hear(policy, target, request, passes=30, sampling=GREEDY):
    """Traced plain passes of this target."""
    for n in range(passes):
        tree = DraftTree((n % 3,), (-1,), trace=True)
        here = context(request, [n % 3], sampling)
        scores = target.score([0], [tree])[0]
        policy.observe([Outcome(here, tree, Verdict((0,), 0), 0.0, 0.0, scores)])


def ended(accept, passes=30):
    """(policy, target) after one traced request; the exits in ``accept`` always match."""
    target = Deep(*[RIGHT if n in accept else WRONG for n in range(1, 4)], RIGHT)
    policy = new(target)
    hear(policy, target, 1, passes)
    policy.forget(1)
    return policy, target


# Shadow tokens.


@pytest.mark.parametrize("seed", range(3))
def test_shadow_tokens_are_what_the_exits_would_have_drafted(seed):
    """In the valid columns every exit's shadow token is its own draft after the committed text."""
    target, fresh = tiny_target(seed, layers=5), tiny_target(seed, layers=5)
    ids, policy = [1, 2, 3], new(target)
    for outcome in rounds(target, policy, ids, 12):
        if not outcome.tree.trace:
            continue
        path, found = outcome.verdict.path, ExitCounts(policy.shadows(outcome))
        text = [*ids, *(outcome.tree.tokens[n] for n in path[1:]), outcome.verdict.bonus]
        for layer in range(1, 5):
            right = 0
            for end in range(len(ids), len(text)):
                fresh.crop(0, 0)
                fresh.feed(0, text[: end - 1])
                right += int(fresh.shallow([0], [text[end - 1]], layer)[0].argmax()) == text[end]
            assert found.table[layer - 1, 0].sum() == pytest.approx(right)
            assert found.seen[layer - 1] == pytest.approx(len(path))


def test_large_vocabularies_are_read_in_parts(monkeypatch):
    def shadows(most_logits):
        tuning = replace(TUNING, most_logits=most_logits)
        monkeypatch.setattr("engine.draft_length.dynamic_exit.TUNING", tuning)
        target = tiny_target(2, layers=5)
        policy = new(target)
        found = rounds(target, policy, [1, 2, 3], 20)
        return [policy.shadows(outcome) for outcome in found if outcome.tree.trace]

    whole, parts = shadows(TUNING.most_logits), shadows(1)
    for one, other in zip(whole, parts, strict=True):
        assert other == pytest.approx(one, abs=1e-5)


def test_untraced_rounds_measure_of_their_exit_what_a_trace_would():
    compared = 0
    for seed in range(6):
        target = tiny_target(seed, layers=5)
        policy = new(target)
        for budget, outcome in drafts(target, policy, [1, 2, 3], 40):
            accepted = len(outcome.verdict.path) - 1
            if budget.stop is None or not outcome.tree.trace:
                continue
            if accepted >= len(budget.stop.probabilities):
                continue
            own = exits(5)
            own.stop = budget.stop
            own.untraced(accepted)
            row = budget.exit_layer - 1
            assert own.counts.table[row] == pytest.approx(policy.shadows(outcome)[row], abs=1e-4)
            compared += 1
    assert compared >= 10


# What requests leave to others.


def test_at_first_one_token_of_the_usual_exit_is_tried():
    policy = new(Deep(one_hot(1, 0), one_hot(1, 0), one_hot(1, 0)))
    assert policy.budgets([context()], [LONGEST]) == [Budget(1, 1, trace=True)]


def test_a_request_starts_from_what_those_of_its_kind_measured():
    policy, _ = ended({2}, passes=60)
    same, other = context(2), context(3, sampling=SamplingParams(1.0))
    assert policy.budgets([same], [LONGEST])[0].exit_layer == 2
    assert policy.budgets([other], [LONGEST]) == [Budget(1, 1, trace=True)]


def test_a_request_learns_a_little_from_one_that_runs_at_the_same_time():
    policy, target = ended({1})
    assert policy.budgets([context(3)], [LONGEST])[0].depth > 0
    target.by_layer = Deep(WRONG, WRONG, WRONG, RIGHT).by_layer
    hear(policy, target, request=2)
    own, other = policy.budgets([context(3), context(2)], [LONGEST] * 2)
    assert own.depth > 0
    assert other.depth == 0


# When layers are looked at.


def traced(request, fresh, cost, rounds_=300):
    """Rounds that are traced if each trace of a request finds this."""
    found = []
    for n in range(rounds_):
        request.choose(request.known, cost)
        if request.due:
            found.append(n)
            request.traced(fresh)
        else:
            request.untraced(0)
    return found


def test_while_plain_the_gaps_between_traces_double_up_to_the_largest():
    nothing = counts(*[[(0.9, False)]] * 2).table
    found = traced(exits(), nothing, units(3, 6), 2500)
    gaps = [b - a for a, b in pairwise(found)]
    wanted = [min(2 ** (n + 1), TUNING.longest_rest) for n in range(len(gaps))]
    assert gaps == wanted
    assert gaps[-2:] == [TUNING.longest_rest] * 2


def test_while_drafting_they_double_up_to_a_small_one():
    right = counts([(0.9, True)], [(0.9, True)]).table
    gaps = [b - a for a, b in pairwise(traced(exits(), right, units(3, 6)))]
    assert max(gaps) == gaps[-1] == TUNING.trace_gap


def test_an_exit_that_became_right_is_found_at_the_next_trace():
    target = Deep(WRONG, WRONG, RIGHT)
    policy, ids = new(target), [0, 1, 2, 0]
    before = list(rounds(target, policy, ids, 100))
    traces = [n for n, outcome in enumerate(before) if outcome.tree.trace]
    gap = 2 * (traces[-1] - traces[-2])
    target.by_layer = Deep(RIGHT, WRONG, RIGHT).by_layer
    after = [outcome.tree.drafted > 0 for outcome in rounds(target, policy, ids, 200)]
    assert after.index(True) <= gap + 10


def test_an_exit_that_is_right_but_too_dear_is_looked_at_ever_less():
    dear = np.array([[1.0] + [100.0 * d for d in range(1, 9)]] * 2)
    right = counts([(0.9, True)], [(0.9, True)]).table
    assert len(traced(exits(), right, dear)) <= 2 * 9


# Where a draft ends.


def stop(matches=0, misses=0, price=0.3, alpha_of=8):
    """Of an exit with tokens of high confidence, and so many of low confidence that were right."""
    known = counts([(0.9, True)] * matches + [(0.9, False)] * misses + [(0.1, True)] * alpha_of)
    return ExitStop(known, 1, prices=[price] * 6)


def test_a_draft_ends_where_the_next_token_does_not_pay():
    here = stop(matches=6, misses=2)
    sure, alpha = here.known.acceptance(1, 0.9), float(here.known.alpha[0])
    wanted = [sure**n * alpha <= 0.3 for n in range(1, 6)]
    assert [here.drawn(0.9) for _ in range(5)] == wanted
    assert any(wanted)
    assert not all(wanted)


def test_an_unsure_token_or_the_last_price_ends_a_draft():
    assert ExitStop(counts([(0.9, True)] * 9), 1, [0.1] * 3).drawn(0.05)
    sure = ExitStop(counts([(0.9, True)] * 9), 1, [0.1] * 3)
    assert [sure.drawn(1.0) for _ in range(3)] == [False, False, True]


# Contracts.


@pytest.mark.parametrize("longest", [Budget(0, 0), Budget(1, 1), Budget(3, 24), Budget(40, 40)])
def test_never_more_than_allowed(longest):
    fresh = new(Deep(one_hot(1, 0), one_hot(1, 0)))
    for policy in (fresh, ended({1})[0], ended(set())[0]):
        budget = policy.budgets([context(9)], [longest])[0]
        assert budget.depth <= min(longest.depth, TUNING.longest_chain)
        assert budget.nodes <= longest.nodes
        assert not (budget.trace and longest.depth == 0)


def test_outcomes_without_states_are_observed():
    policy, _ = ended({1})
    policy.budgets([context(5)], [LONGEST])
    for scores in (None, Scores(torch.zeros(2, 3))):
        policy.observe([Outcome(context(5), chain([0, 1]), Verdict((0, 1), 2), 0.1, 0.1, scores)])
    assert policy.budgets([context(5)], [LONGEST])[0].depth > 0
