"""Dynamic exit: the paper's numbers, what requests teach, and when exits are tried again."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch

from engine.draft_length import dynamic_exit
from engine.draft_length.dynamic_exit import (
    BELIEVED,
    FIRST_GAP,
    FOLLOWED,
    PROBE_GAP,
    TRACE_GAP,
    Believed,
    DynamicExit,
)
from engine.draft_length.exit_rules import Exit, Price
from engine.draft_length.exit_value import RoundCost, best_exit
from engine.draft_length.shadow_tokens import BINS, COLUMNS, POOL_WEIGHT, Counts
from engine.interfaces.drafter import Budget, DrafterResources, Outcome
from engine.interfaces.target import Scores
from engine.request import SamplingParams
from engine.speculation.tree import DraftTree, chain
from engine.speculation.verify import Verdict
from tests.engine.draft_length.counted import (
    GREEDY,
    chains,
    context,
    counts,
    drafted,
    flat,
    odds,
    units,
)
from tests.engine.draft_length.deep import Deep, new, one_hot, rounds
from tests.engine.tiny import tiny_target

LONGEST = Budget(6, 6)


# Formulas.


def test_the_threshold_ends_a_draft_with_the_first_token_below_it():
    policy = DynamicExit(
        DrafterResources(Deep(*[one_hot(0, 1)] * 8), options={"threshold": 1.0}), "early_exit"
    )
    table = counts(*[[(0.9, True), (0.9, True), (0.5, False)]] * 7)
    cost = chains(8, 6)
    stop = policy._stop(Believed(best_exit(odds(table.alpha), cost), table, cost, 1, 0))
    assert [stop.drawn(p) for p in (0.95, 0.71, 0.69)] == [False, False, True]  # tau is 0.7
    assert stop.heard == [0.95, 0.71, 0.69]


def test_a_draft_ends_where_the_next_token_does_not_pay():
    matches, misses = np.zeros(BINS), np.zeros(BINS)
    matches[-1], misses[-1] = 6.0, 2.0  # three in four of the sure ones are right
    price = Price(Exit(matches, misses, alpha=0.8), prices=[0.3] * 6)
    survived = (6 + 2 * 0.9) / (6 + 2 + 2)
    reach = [survived**n * 0.8 for n in range(1, 7)]
    assert reach[2] > 0.3 > reach[3]
    assert [price(0.9) for _ in range(4)] == [False, False, False, True]


def test_an_unsure_token_or_the_last_price_ends_a_draft():
    none = np.zeros(BINS)
    assert Price(Exit(none, none, 0.9), [0.1] * 3)(0.05)
    sure = Price(Exit(none, none, 0.9), [0.1] * 3)
    assert [sure(1.0) for _ in range(3)] == [False, False, True]


# Cost.


def test_the_papers_units_on_request():
    cost = flat(seconds=77.0)
    policy = DynamicExit(DrafterResources(Deep(*[one_hot(0, 1)] * 4), cost=cost, options={"units": 1.0}), "early_exit")  # fmt: skip
    policy.observe([drafted(2, 2, 5.0)])
    assert policy._costs.table([context()], 3).chains * 4 == pytest.approx(units(4, 3))


# Shadow tokens.


@pytest.mark.parametrize("seed", range(3))
def test_shadow_tokens_are_what_the_exits_would_have_drafted(seed):
    """In the valid columns every exit's shadow token is its own draft behind the committed text."""
    target, fresh = tiny_target(seed, layers=5), tiny_target(seed, layers=5)
    ids, policy = [1, 2, 3], new(target)
    for outcome in rounds(target, policy, ids, 12):
        if not outcome.tree.trace:
            continue
        path, found = outcome.verdict.path, Counts(policy._shadows(outcome))
        text = [*ids, *(outcome.tree.tokens[n] for n in path[1:]), outcome.verdict.bonus]
        for layer in range(1, 5):
            right = 0
            for end in range(len(ids), len(text)):
                fresh.crop(0, 0)
                fresh.feed(0, text[: end - 1])
                right += int(fresh.shallow([0], [text[end - 1]], layer)[0].argmax()) == text[end]
            assert found.matches[layer - 1].sum() == pytest.approx(right)
            assert found.seen[layer - 1] == pytest.approx(len(path))


def test_large_vocabularies_are_read_in_parts(monkeypatch):
    target = tiny_target(2, layers=5)
    policy = new(target)
    whole = [policy._shadows(o) for o in rounds(target, policy, [1, 2, 3], 20) if o.tree.trace]
    monkeypatch.setattr(dynamic_exit, "CHUNK", 1)
    target = tiny_target(2, layers=5)
    policy = new(target)
    parts = [policy._shadows(o) for o in rounds(target, policy, [1, 2, 3], 20) if o.tree.trace]
    assert max(len(w) for w in whole) > 1
    for w, p in zip(whole, parts, strict=True):
        assert p == pytest.approx(w, abs=1e-5)


def test_untraced_rounds_tell_of_their_exit_what_a_trace_would():
    compared = 0
    for seed in range(6):
        target = tiny_target(seed, layers=5)
        policy = new(target)
        for outcome in rounds(target, policy, [1, 2, 3], 40):
            request = policy._requests[1]
            accepted = len(outcome.verdict.path) - 1
            if (
                request.stop is None
                or accepted >= len(request.stop.heard)
                or not outcome.tree.trace
            ):
                continue
            own = replace(request, counts=Counts.empty(4), stop=replace(request.stop))
            own.untraced(outcome.tree, outcome.verdict.path)
            row, told = request.choice.exit - 1, slice(2 * BINS + 2)
            wanted = policy._shadows(outcome)[row, told]
            assert own.counts.table[row, told] == pytest.approx(wanted, abs=1e-4)
            compared += 1
    assert compared >= 10


# Warm-up and what requests leave behind.


def test_the_prompt_warms_up_every_exit_for_a_little():
    same, other = one_hot(1, 2, 0), one_hot(2, 0, 1)
    target = Deep(other, same, same)
    policy = new(target)
    policy.prompt(context(), target.feed(0, [0, 1, 2] * 10, policy.prompt_rows))
    known = policy._request(context()).counts
    assert known.matches.sum(1) == pytest.approx([0.0, 30 / 16], abs=1e-6)
    assert known.seen == pytest.approx([30 / 16] * 2)
    assert policy.budgets([context()], [LONGEST])[0].exit_layer == 2


def test_without_a_prompt_to_look_at_one_token_finds_out():
    """A prompt of one token, or one that was cached, has no states; the drafter's exit is tried."""
    policy = new(Deep(one_hot(1, 0), one_hot(1, 0), one_hot(1, 0)))
    first = policy.budgets([context()], [LONGEST])[0]
    assert first == Budget(1, 1, trace=True)


def ended(accept, request=1, sampling=GREEDY, rounds_=30, layers=4):
    """A policy that heard one traced request to its end; the exits in ``accept`` always match."""
    target = Deep(*[one_hot(1, 2, 0) if n in accept else one_hot(2, 0, 1) for n in range(1, layers)],
                  one_hot(1, 2, 0))  # fmt: skip
    policy = new(target)
    hear(policy, target, request, rounds_, sampling)
    policy.forget(request)
    return policy


def hear(policy, target, request, rounds_, sampling=GREEDY):
    """Traced plain rounds of this target."""
    policy._target = target
    for n in range(rounds_):
        tree = DraftTree((n % 3,), (-1,), trace=True)
        here = context(request, [n % 3], sampling)
        scores = target.score([0], [tree])[0]
        policy.observe([Outcome(here, tree, Verdict((0,), 0), 0.0, 0.0, scores)])


def test_a_request_starts_from_what_those_of_its_kind_learned():
    policy = ended(accept={2}, rounds_=60)
    assert policy._request(context(2)).known.seen.max() == pytest.approx(POOL_WEIGHT)
    assert policy.budgets([context(2)], [LONGEST])[0].exit_layer == 2
    drawn = SamplingParams(1.0)
    assert not policy._request(context(3, sampling=drawn)).known.seen.any()


def test_what_earlier_requests_know_is_not_looked_up_in_the_prompt_again():
    policy = ended(accept={2})
    policy.prompt(context(2), policy._target.feed(0, [0, 1, 2], 3))
    assert not policy._request(context(2)).counts.seen.any()


def test_a_request_learns_a_little_from_one_that_runs_beside_it():
    policy = ended(accept={1})
    own = policy._request(context(3)).counts
    before = policy._request(context(3)).known.alpha
    hear(policy, Deep(*[one_hot(2, 0, 1)] * 3, one_hot(1, 2, 0)), request=2, rounds_=30)
    good, bad = policy.budgets([context(3), context(2)], [LONGEST] * 2)
    assert good.depth > 0
    assert bad.depth == 0
    assert policy._request(context(3)).counts is own
    assert policy._request(context(3)).known.alpha[0] < before[0]


# Off, and probing.


def test_while_off_nothing_is_traced_but_growing_intervals_apart():
    target = Deep(one_hot(2, 0, 1), one_hot(2, 0, 1), one_hot(1, 2, 0))
    policy = new(target)
    traces, ids = [], [0, 1, 2, 0]
    for n, outcome in enumerate(rounds(target, policy, ids, 300)):
        assert outcome.tree.drafted == 0 or n == 0  # one short draft finds out
        assert (outcome.scores.states is not None) == outcome.tree.trace
        traces += [n] if outcome.tree.trace else []
    gaps = [b - a for a, b in pairwise(traces)]
    assert gaps == [2**n for n in range(1, len(gaps) + 1)]
    assert len(traces) < 10
    policy._requests[1].gap = PROBE_GAP
    policy._requests[1].fresh = policy._shadows(round_of_trace(target))
    assert policy.budgets([context()], [LONGEST])[0].depth == 0
    assert policy._requests[1].gap == PROBE_GAP


def round_of_trace(target):
    tree = DraftTree((0,), (-1,), trace=True)
    return Outcome(context(), tree, Verdict((0,), 0), 0.0, 0.0, target.score([0], [tree])[0])


def test_luck_is_followed_up_at_once_until_drafts_pay_again():
    wrong, right = one_hot(2, 0, 1), one_hot(1, 2, 0)
    target, lucky = Deep(wrong, wrong, right), Deep(right, wrong, right)
    policy, ids = new(target), [0, 1, 2, 0]
    for _ in rounds(target, policy, ids, 100):
        pass
    wait = policy._requests[1].gap - policy._requests[1].since
    policy._target = lucky
    plain, before = 0, len(ids)
    for outcome in rounds(lucky, policy, ids, 200):
        if outcome.tree.drafted:
            break
        plain += 1
    assert wait <= plain <= wait + 10  # one wait, then every pass was looked at
    assert len(ids) == before + plain


def test_luck_with_an_exit_that_is_too_dear_is_followed_for_ever_less():
    """Its token is right in every pass; every pass was traced, and plain decoding lost a tenth."""
    target = Deep(one_hot(1, 2, 0), one_hot(1, 2, 0), one_hot(1, 2, 0))
    policy = new(target)
    dear = np.array([[1.0] + [100.0 * d for d in range(1, 9)]] * 2)
    policy._costs.table = lambda batch, depth: RoundCost(dear).upto(depth)
    traces = traced(rounds(target, policy, [0, 1, 2, 0], 300))
    runs = [n for n in traces if n - 1 not in traces]
    gaps = [b - a for a, b in pairwise(runs)]
    assert all(b >= 2 * a - FOLLOWED for a, b in pairwise(gaps))
    assert len(traces) <= (FOLLOWED + 1) * 9

    policy.forget(1)
    again = traced(rounds(target, policy, [0, 1, 2, 0], 300))
    assert again[0] == FIRST_GAP - 1  # what the answer before found out need not be found out anew
    assert len(again) < len(traces)


def traced(outcomes):
    """Rounds that were."""
    return [n for n, outcome in enumerate(outcomes) if outcome.tree.trace]


def test_a_settled_choice_is_looked_at_less_often_and_a_changed_one_more():
    right = one_hot(1, 2, 0)
    target = Deep(right, right, right, right)
    policy, ids = new(target), [0, 1, 2, 0]
    traces = [n for n, o in enumerate(rounds(target, policy, ids, 350)) if o.tree.trace]
    gaps = [b - a for a, b in pairwise(traces)]
    assert gaps == sorted(gaps)
    assert gaps[-1] == TRACE_GAP
    request = policy._requests[1]
    request.fresh = np.zeros_like(request.counts.table)
    request.counts = counts([(0.9, False)] * 9, [(0.9, True)] * 9, [(0.9, True)] * 9)
    assert policy.budgets([context()], [LONGEST])[0].exit_layer == 2
    assert request.gap == TRACE_GAP // 2


def test_a_change_that_brings_next_to_nothing_is_no_reason_to_look_more_often():
    policy = ended({2})
    request = policy._request(context(5))
    cost = RoundCost(np.array([[8.0, 9.0], [8.0, 9.0]]))
    even, slightly, clearly = (
        counts(
            [(0.9, True)] * 8 + [(0.9, False)] * 2, [(0.9, True)] * hits + [(0.9, False)] * misses
        )
        for hits, misses in ((8, 2), (9, 2), (99, 1))
    )
    request.choice, request.gap = replace(request.choose(even, cost), exit=1), 4
    for known, gap in ((slightly, 8), (clearly, 4)):
        request.choice, request.fresh = replace(request.choice, exit=1), np.zeros((2, COLUMNS))
        assert request.choose(known, cost).exit == 2
        assert request.gap == gap


def test_a_choice_is_believed_for_some_rounds_unless_something_changed(monkeypatch):
    policy, made = ended({1}), []
    table = policy._costs.table
    monkeypatch.setattr(policy._costs, "table", lambda *about: made.append(about) or table(*about))

    def after(rounds, *numbers, longest=LONGEST):
        for _ in range(rounds):
            found = policy.budgets([context(n) for n in numbers], [longest] * len(numbers))
            assert all(budget.exit_layer == 1 for budget in found)
        return len(made)

    assert after(2 * BELIEVED, 9) == 2
    policy._request(context(9)).fresh = np.zeros((policy._target.layers - 1, COLUMNS))
    assert after(1, 9) == 3  # its layers were looked at
    assert after(1, 9, 10) == 4  # the pass is another one's, too
    fewer = policy._request(context(9)).choice.depth - 1
    assert after(1, 9, 10, longest=Budget(fewer, fewer)) == 5  # the answer is nearly over


# Contracts.


@pytest.mark.parametrize("longest", [Budget(0, 0), Budget(1, 1), Budget(3, 24), Budget(40, 40)])
def test_never_more_than_allowed(longest):
    for policy in (new(Deep(one_hot(1, 0), one_hot(1, 0))), ended({1}), ended(set())):
        budget = policy.budgets([context(9)], [longest])[0]
        assert budget.depth <= min(longest.depth, 18)
        assert budget.nodes <= longest.nodes
        assert not (budget.trace and longest.depth == 0)


def test_outcomes_without_scores_are_heard_too():
    policy = ended({1})
    policy.budgets([context(5)], [LONGEST])
    tree = chain([0, 1])
    policy.observe([Outcome(context(5), tree, Verdict((0, 1), 2), 0.1, 0.1)])
    policy.observe(
        [Outcome(context(5), tree, Verdict((0, 1), 2), 0.1, 0.1, Scores(torch.zeros(2, 3)))]
    )
    assert policy._requests[5].since == 2


def test_a_draft_that_never_began_says_nothing_of_its_exit():
    policy = ended({1})
    policy.budgets([context(5)], [LONGEST])
    request = policy._requests[5]
    before = request.counts, request.pool.counts
    assert request.stop is not None
    request.untraced(chain([1]), [0])
    assert (request.counts, request.pool.counts) == before
