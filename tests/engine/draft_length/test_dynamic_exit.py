"""Dynamic exit: what requests measure, when exits are tried again, and siblings of a chain."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch

from engine.draft_length.dynamic_exit import ExitPool, RequestExits
from engine.draft_length.exit_rules import ExitStop
from engine.draft_length.exit_value import ExitChoice, RoundCost
from engine.draft_length.shadow_tokens import Counts
from engine.draft_length.tuning import TUNING
from engine.drafters.early_exit import EarlyExit
from engine.interfaces.drafter import Budget, DrafterResources, Outcome
from engine.interfaces.target import Capability, Scores
from engine.request import SamplingParams
from engine.speculation.rng import SeededRandom
from engine.speculation.tree import DraftTree, chain, single
from engine.speculation.verify import Verdict
from engine.statistics.pass_cost import PassCost
from tests.engine.draft_length.exits import (
    BINS,
    GREEDY,
    LONGEST,
    Deep,
    chains,
    context,
    counts,
    drafts,
    flat,
    new,
    one_hot,
    over,
    rounds,
)
from tests.engine.tiny import tiny_target

RIGHT, WRONG = one_hot(1, 2, 0), one_hot(2, 0, 1)


def exits(layers=3, gap=1):
    """A request of which nothing was measured."""
    return RequestExits(ExitPool(Counts.empty(layers - 1), gap))


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
        path, found = outcome.verdict.path, Counts(policy.shadows(outcome))
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
            own.choice, own.stop = ExitChoice(budget.exit_layer, 6, 1.0), budget.stop
            own.untraced(outcome.tree, outcome.verdict.path)
            row, columns = budget.exit_layer - 1, slice(2 * BINS)
            wanted = policy.shadows(outcome)[row, columns]
            assert own.counts.table[row, columns] == pytest.approx(wanted, abs=1e-4)
            compared += 1
    assert compared >= 10


@pytest.mark.parametrize(("path", "found"), [((0, 1, 4), 1.0), ((0, 1), 0.0), ((0, 1, 2), None)])
def test_untraced_rounds_measure_which_sibling_was_right(path, found):
    """Siblings that were drafted are known to be right or not, later ones are not."""
    request = exits()
    request.choice, request.stop = (
        ExitChoice(1, 2, 1.0),
        ExitStop(None, (), probabilities=[0.9, 0.8]),
    )
    request.untraced(DraftTree((0, 1, 2, 5, 6, 7), (-1, 0, 1, 1, 1, 0)), path)
    ranks = request.counts.table[0, 2 * BINS :].tolist()
    if found is None:  # the chain was accepted
        assert not any(ranks)
    else:
        assert ranks == [0.0, found, *[0.0] * 5, 1.0, 1.0, *[0.0] * 5]


# The prompt, and what requests leave to others.


def test_the_prompt_decides_the_first_exit():
    target = Deep(WRONG, RIGHT, RIGHT)
    policy = new(target)
    policy.prompt(context(), target.feed(0, [0, 1, 2] * 10, policy.prompt_rows))
    assert policy.budgets([context()], [LONGEST])[0].exit_layer == 2


def test_without_a_prompt_one_token_of_the_usual_exit_is_tried():
    """A prompt of one token, or one that was cached, has no states."""
    policy = new(Deep(one_hot(1, 0), one_hot(1, 0), one_hot(1, 0)))
    assert policy.budgets([context()], [LONGEST]) == [Budget(1, 1, trace=True)]


def test_a_request_starts_from_what_those_of_its_kind_measured():
    policy, _ = ended({2}, passes=60)
    same, other = context(2), context(3, sampling=SamplingParams(1.0))
    assert policy.budgets([same], [LONGEST])[0].exit_layer == 2
    assert policy.budgets([other], [LONGEST]) == [Budget(1, 1, trace=True)]


def test_a_prompt_is_not_read_if_earlier_requests_measured_enough():
    policy, target = ended({2})
    states = target.feed(0, [0, 1, 2], 3)
    target.by_layer = None  # reading would fail
    policy.prompt(context(2), states)


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
            request.untraced(single(0), [0])
    return found


def test_while_plain_the_gaps_between_traces_double_up_to_the_largest():
    nothing = counts(*[[(0.9, False)]] * 2).table
    found = traced(exits(), nothing, chains(3, 6), 2500)
    gaps = [b - a for a, b in pairwise(found)]
    wanted = [min(2 ** (n + 1), TUNING.plain_trace_gap) for n in range(len(gaps))]
    assert gaps == wanted
    assert gaps[-2:] == [TUNING.plain_trace_gap] * 2


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
    """Its token was right in every pass: every pass was traced, and plain decoding lost a tenth."""
    dear = RoundCost(np.array([[1.0] + [100.0 * d for d in range(1, 9)]] * 2))
    right = counts([(0.9, True)], [(0.9, True)]).table
    request = exits()
    found = traced(request, right, dear)
    starts = [n for n in found if n - 1 not in found]
    gaps = [b - a for a, b in pairwise(starts)]
    assert all(b >= 2 * a - TUNING.follow_traces for a, b in pairwise(gaps))
    assert len(found) <= (TUNING.follow_traces + 1) * 9
    again = traced(exits(gap=request.plain_gap), right, dear)  # the next answer
    assert again[0] == TUNING.first_trace_gap - 1
    assert len(again) < len(found)


# Siblings: candidates that hang next to the chain's tokens, where rows of a pass are cheap.


def doubtful(share):
    """An exit that gives the right token this share and another token the rest."""
    law = share * RIGHT + (1 - share) * WRONG
    return Deep(law, law, RIGHT)


def test_where_rows_are_free_second_choices_are_drafted_and_taken():
    """The first layer always prefers another token: no chain of it would be accepted."""
    target = doubtful(0.4)
    found = [o.tree for o in rounds(target, over(target, flat()), [0, 1, 2, 0], 60)]
    assert sum(not tree.is_chain for tree in found) > len(found) / 2


@pytest.mark.parametrize("kept", ["chains", "steep", "narrow"])
def test_where_siblings_are_not_allowed_or_do_not_pay_there_are_none(kept):
    target, cost = doubtful(0.6), flat()
    if kept == "steep":
        cost = PassCost({rows: 0.1 * rows for rows in range(1, 14)})
    if kept == "narrow":
        target.offers = frozenset({Capability.LAYERS})
    options = {"chains": 1.0} if kept == "chains" else {}
    found = rounds(target, over(target, cost, **options), [0, 1, 2, 0], 60)
    assert all(outcome.tree.is_chain for outcome in found)


def test_a_kept_choice_drafts_no_more_nodes_than_are_left():
    target = doubtful(0.4)
    policy, ids = over(target, flat()), [0, 1, 2, 0]
    for _ in rounds(target, policy, ids, 30):
        pass
    for nodes in (12, 6, 3, 2):
        here = context(ids=ids, chance=SeededRandom(1))
        [budget] = policy.budgets([here], [Budget(nodes, nodes)])
        [tree] = EarlyExit(DrafterResources(target)).draft([here], [budget])
        assert 0 < tree.drafted <= nodes


# Contracts.


@pytest.mark.parametrize("longest", [Budget(0, 0), Budget(1, 1), Budget(3, 24), Budget(40, 40)])
def test_never_more_than_allowed(longest):
    fresh = new(Deep(one_hot(1, 0), one_hot(1, 0)))
    for policy in (fresh, ended({1})[0], ended(set())[0]):
        budget = policy.budgets([context(9)], [longest])[0]
        assert budget.depth <= min(longest.depth, TUNING.exit_longest)
        assert budget.nodes <= longest.nodes
        assert not (budget.trace and longest.depth == 0)


def test_outcomes_without_states_are_observed():
    policy, _ = ended({1})
    policy.budgets([context(5)], [LONGEST])
    for scores in (None, Scores(torch.zeros(2, 3))):
        policy.observe([Outcome(context(5), chain([0, 1]), Verdict((0, 1), 2), 0.1, 0.1, scores)])
    assert policy.budgets([context(5)], [LONGEST])[0].depth > 0
