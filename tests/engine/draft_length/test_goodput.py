"""Goodput lengths: the argmax of the paper's formula, off when speculation loses, probing."""

from dataclasses import replace
from itertools import accumulate, pairwise, product
from operator import mul

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.draft_length.goodput import DepthAcceptance, Goodput, Offer, admit, pooled, shrunk
from engine.draft_length.tuning import TUNING
from engine.interfaces.drafter import Budget, Context, DrafterResources, Outcome, StopRule
from engine.request import Prior, SamplingParams
from engine.speculation.tree import DraftTree, chain
from engine.speculation.verify import Verdict
from engine.statistics.pass_cost import DraftCost, PassCost

PROBE_FIRST = TUNING.first_rest
LONGEST = Budget(8, 8)
HERE = Context(1, 0, [1], SamplingParams(), None)
SELECTIVE = frozenset({StopRule.FLOOR})


def outcome(drafted, accepted, draft_seconds, score_seconds):
    tree = chain(range(drafted + 1))
    return Outcome(HERE, tree, Verdict(tuple(range(accepted + 1)), 0), draft_seconds, score_seconds)


class Measured(Goodput):
    """A policy whose outcomes also reach the cost curve, as in the engine."""

    def __init__(self):
        self.cost = PassCost()
        super().__init__(DrafterResources(None, cost=self.cost), "chain")

    def observe(self, outcomes):
        for o in outcomes:
            self.cost.observe(len(o.tree), 0, o.score_seconds)
        super().observe(outcomes)


new = Measured


def taught(accept, flat, slope, draft, rounds=40):
    """A policy that saw drafts of mixed lengths on a machine with this cost curve."""
    policy = new()
    for i in range(rounds):
        drafted = i % 5
        cost = flat + slope * (drafted + 1)
        policy.observe([outcome(drafted, min(accept, drafted), draft * drafted, cost)])
    return policy


def chosen(policy):
    return policy.budgets([HERE], [LONGEST])[0].depth


def test_a_new_request_starts_by_speculating():
    assert chosen(new()) == LONGEST.depth


def test_while_off_it_probes_with_growing_intervals_up_to_the_largest(monkeypatch):
    monkeypatch.setattr("engine.draft_length.goodput.TUNING", replace(TUNING, longest_rest=64))
    policy = taught(0, flat=10, slope=1, draft=3)
    waits, plain = [], 0
    for _ in range(400):
        if chosen(policy):
            waits.append(plain)
            plain = 0
            policy.observe([outcome(4, 0, 12, 15)])
        else:
            plain += 1
            policy.observe([outcome(0, 0, 0, 11)])
    assert len(waits) >= 3
    assert all(later >= earlier for earlier, later in pairwise(waits))
    assert waits[-1] == waits[-2] == 64


def test_accepted_drafts_switch_it_on_again():
    policy = taught(accept=0, flat=10, slope=0.2, draft=0.2)
    assert chosen(policy) == 0
    for _ in range(20):
        policy.observe([outcome(4, 4, 0.8, 11)])
    assert chosen(policy) > 0


def test_a_request_leans_on_the_others_until_it_knows_better():
    policy = taught(accept=0, flat=10, slope=1, draft=3)
    other = Context(2, 1, [1], SamplingParams(), None)
    assert [b.depth for b in policy.budgets([HERE, other], [LONGEST, LONGEST])] == [0, 0]
    for _ in range(12):
        policy.observe([replace(outcome(4, 4, 12, 15), context=other)])
    assert policy.budgets([other], [LONGEST])[0].depth > 0
    assert chosen(policy) == 0


def test_probes_of_a_batch_draft_one_token():
    policy = steady(curve((1, 10.0), (64, 400.0)), {1: (0,), 2: (0,)})
    for _ in range(PROBE_FIRST + 1):
        budgets = policy.budgets(contexts(2), [LONGEST] * 2)
        policy.observe([replace(outcome(0, 0, 0, 0), context=c) for c in contexts(2)])
    assert [b.depth for b in budgets] == [1, 1]


def test_the_next_request_starts_from_what_the_last_one_found_and_probes_soon():
    policy = taught(accept=0, flat=10, slope=1, draft=3)
    policy.forget(1)
    assert chosen(policy) == 0
    for _ in range(PROBE_FIRST):
        policy.observe([outcome(0, 0, 0, 11)])
    assert chosen(policy) > 0


@pytest.mark.parametrize("longest", [Budget(0, 0), Budget(1, 1), Budget(3, 24)])
def test_never_more_than_allowed(longest):
    for policy in (new(), taught(9, 10, 0, 0), taught(0, 10, 1, 3)):
        budget = policy.budgets([HERE], [longest])[0]
        assert budget.depth <= longest.depth
        assert budget.nodes <= longest.nodes


# Several requests in one step, and trees.


def contexts(count):
    return [Context(n, n, [1] * 10, SamplingParams(), None) for n in range(1, count + 1)]


def steady(cost, accept, rounds=60):
    """A policy on a machine with this pass cost; its requests accept, in turn, so many of four."""
    policy = Goodput(DrafterResources(None, cost=cost), "chain")
    for n, accepted in accept.items():
        for i in range(rounds):
            one = outcome(4, accepted[i % len(accepted)], 0.4, 0.0)
            policy.observe([replace(one, context=contexts(n)[-1])])
    return policy


def curve(*points):
    cost = PassCost()
    for rows, seconds in points:
        cost.profile(rows, seconds)
    return cost


FLAT, STEEP = curve((1, 10.0), (64, 10.5)), curve((1, 10.0), (8, 10.5), (64, 80.0))


@pytest.mark.parametrize("cost", [FLAT, STEEP, curve((1, 10.0), (64, 200.0))])
def test_the_allocation_is_the_best_of_all_by_enumeration(cost):
    accept = {1: (3, 2, 4), 2: (1, 0, 2)}
    policy, longest = steady(cost, accept), Budget(4, 4)
    pool, own = DepthAcceptance(TUNING.pool_memory), {}
    draft = DraftCost()
    for n, accepted in accept.items():  # what the policy was taught
        own[n] = DepthAcceptance(TUNING.request_memory)
        for i in range(60):
            for depths in (pool, own[n]):
                depths.note(accepted[i % 3], refused=accepted[i % 3] < 4)
            if i:  # the first draft reads the prompt
                draft.observe(4, 4, 0.4)
    chosen = [b.depth for b in policy.budgets(contexts(2), [longest] * 2)]

    def goodput(lengths):
        gain = rows = 0.0
        for n, length in enumerate(lengths, 1):
            reach = 1.0
            rows, gain = rows + 1 + length, gain + 1
            for rate in shrunk(own[n], pooled(pool, length)):
                reach *= rate
                gain += reach
        seconds = cost.seconds(rows, 20) + draft.seconds(max(lengths), sum(lengths))
        return gain / seconds

    best = max(product(range(5), repeat=2), key=goodput)
    assert goodput(chosen) == pytest.approx(goodput(best))


CHANCES = frozenset({StopRule.CHANCES})


def test_a_chain_with_probabilities_is_admitted_by_averages_and_ends_by_its_own():
    averages, own = (
        Goodput(DrafterResources(None, cost=STEEP, stop_rules=h), "chain")
        for h in (frozenset(), CHANCES)
    )
    for policy in (averages, own):
        for accepted in (0, 1, 2, 3, 4, 4) * 5:
            policy.observe([outcome(4, accepted, 1.0, 0.0)])
    (short,), (open_end,) = (policy.budgets([HERE], [LONGEST]) for policy in (averages, own))
    assert 0 < short.depth < open_end.depth == LONGEST.depth
    assert open_end.stop.drawn(0.01)
    (sure,) = own.budgets([HERE], [LONGEST])
    assert not any(sure.stop.drawn(1.0) for _ in range(3))


def test_a_chain_with_probabilities_is_still_switched_off():
    policy = Goodput(DrafterResources(None, cost=STEEP, stop_rules=CHANCES), "chain")
    for _ in range(40):
        policy.observe([outcome(4, 0, 4.0, 0.0)])
    (budget,) = policy.budgets([HERE], [LONGEST])
    assert (budget.depth, budget.stop) == (0, None)


def test_chains_of_a_crowd_share_floors_and_have_a_rule_each():
    policy = Goodput(DrafterResources(None, cost=FLAT, stop_rules=CHANCES), "chain")
    first, second = policy.budgets(contexts(2), [LONGEST] * 2)
    assert first.stop is not second.stop
    assert first.stop.threshold is second.stop.threshold
    assert first.stop.threshold.growing == 2


def test_trees_are_admitted_by_averages_even_if_the_drafter_reports_probabilities():
    policy = Goodput(DrafterResources(None, cost=FLAT, stop_rules=CHANCES), "chain")
    (budget,) = policy.budgets([HERE], [TREE])
    assert (budget.nodes > 0, budget.stop) == (True, None)


TREE = Budget(depth=8, nodes=64)


def tree_outcome(nodes, accepted):
    """A tree with a spine of ``accepted`` nodes and the rest below the root."""
    parents = [-1, *range(accepted), *[0] * (nodes - accepted)]
    tree = DraftTree(tuple(range(nodes + 1)), tuple(parents))
    return Outcome(HERE, tree, Verdict(tuple(range(accepted + 1)), 0), 0.1, 0.0)


def grown(cost, gains, rounds=30, stop_rules=frozenset()):
    policy = Goodput(DrafterResources(None, cost=cost, stop_rules=stop_rules), "sequoia")
    for _ in range(rounds):
        for nodes, accepted in gains.items():
            policy.observe([tree_outcome(nodes, accepted)])
    return policy.budgets([HERE], [TREE])[0]


def test_rows_that_reading_hides_are_all_used_unless_nothing_is_drafted():
    few, none = {4: 2, 16: 2}, {16: 0, 64: 0}  # larger trees brought no more, by chance
    for hidden, nodes in ((0, 4), (33, 32), (65, 64), (900, 64)):
        cost = curve((1, 10.0), (64, 10.5))
        cost.hidden = hidden
        policy = Goodput(DrafterResources(None, cost=cost, stop_rules=SELECTIVE), "specexec")
        for _ in range(30):
            for size, accepted in few.items():
                policy.observe([tree_outcome(size, accepted)])
        assert policy.budgets([HERE], [TREE])[0].nodes >= nodes
    cost = curve((1, 10.0), (8, 10.5), (64, 80.0))
    cost.hidden = 8
    assert grown(cost, none).nodes == 0


def test_a_drafter_that_leaves_out_unlikely_nodes_gets_room_and_a_price():
    """What is likely differs from round to round: a size learnt from other trees would miss that."""
    gains = {4: 2, 16: 3, 64: 5}
    least, steep = grown(STEEP, gains), grown(STEEP, gains, stop_rules=SELECTIVE)
    assert (least.nodes < 32, steep.nodes, steep.depth) == (True, 64, 8)
    assert steep.floor == least.floor > grown(FLAT, gains, stop_rules=SELECTIVE).floor
    assert grown(FLAT, gains, stop_rules=SELECTIVE).floor >= TUNING.least_floor
    assert grown(STEEP, {16: 0, 64: 0}, stop_rules=SELECTIVE).nodes == 0


def test_a_selective_drafter_gets_the_prices_of_its_rows_at_the_rate_of_the_pass():
    """Nothing for no row; the jump to the second row, and at least what plain decoding would bring."""
    jump = curve((1, 10.0), (2, 18.0), (64, 20.0))
    prices = grown(jump, {4: 2, 16: 3, 64: 5}, stop_rules=SELECTIVE).prices
    plain = jump.prices(1.0, len(prices) - 1)
    assert prices[0] == 0
    assert all(price >= least for price, least in zip(prices, plain, strict=True))
    assert prices[1] > 0.8 > prices[40] - prices[1]
    assert grown(jump, {4: 2, 16: 3, 64: 5}).prices == ()


# Earlier sessions.


def test_history_sets_the_first_length_and_fades():
    poor = Prior("chain", depths=((500.0, 50.0),) * 8)
    here = replace(HERE, priors={"chain": poor})
    policy = Goodput(DrafterResources(None, cost=curve((1, 10.0), (64, 40.0))), "chain")
    assert policy.budgets([here], [LONGEST])[0].depth < 2
    for _ in range(60):
        policy.observe([replace(outcome(4, 4, 0.1, 0.0), context=here)])
    assert policy.budgets([here], [LONGEST])[0].depth >= 6


def test_history_of_another_drafter_and_of_nothing_is_ignored():
    empty = Prior("chain", depths=((0.0, 0.0),))
    other = Prior("lookup", depths=((500.0, 0.0),))
    policy = Goodput(DrafterResources(None, cost=FLAT), "chain")
    for number, prior in enumerate((empty, other), 5):
        here = replace(HERE, request=number, priors={prior.drafter: prior})
        assert policy.budgets([here], [LONGEST])[0].depth == LONGEST.depth


# Allocation, by enumeration.


GRADUAL = curve((1, 1.0), (4, 1.1), (16, 2.0), (64, 6.0))
GAINS = st.lists(st.floats(0.05, 1.0), min_size=1, max_size=5)


def chain_offers(rates):
    """Each token is accepted with its rate, if all before it were."""
    return [Offer(1, depth, gain) for depth, gain in enumerate(accumulate(rates, mul), 1)]


def rate_of(offers, taken, draft):
    chosen = [offer for own, n in zip(offers, taken, strict=True) for offer in own[:n]]
    rows = len(offers) + sum(offer.rows for offer in chosen)
    deepest = max((offer.steps for offer in chosen), default=0)
    seconds = GRADUAL.seconds(rows, 40) + draft.seconds(deepest, rows - len(offers))
    return (len(offers) + sum(offer.gain for offer in chosen)) / seconds, rows


@given(st.lists(GAINS, min_size=1, max_size=3), st.floats(0.0, 0.5))
def test_admitted_chains_are_the_best_of_all_lengths(rates, step):
    offers, draft = [chain_offers(own) for own in rates], DraftCost(step=step)
    taken, rate, rows = admit(offers, GRADUAL, draft, 40)
    assert (pytest.approx(rate), rows) == rate_of(offers, taken, draft)
    every = product(*(range(len(own) + 1) for own in offers))
    assert rate == pytest.approx(max(rate_of(offers, each, draft)[0] for each in every))


def test_admitted_trees_are_the_best_of_all_doublings():
    sizes, gains = (1, 1, 2, 4, 8), ((0.5, 0.3, 0.2, 0.1, 0.05), (0.9, 0.8, 0.7, 0.7, 0.6))
    offers = [[Offer(n, 2**k, g) for k, (n, g) in enumerate(zip(sizes, own, strict=True))] for own in gains]  # fmt: skip
    draft = DraftCost(step=0.02)
    taken, rate, _ = admit(offers, GRADUAL, draft, 40)
    every = product(range(6), repeat=2)
    assert rate == pytest.approx(max(rate_of(offers, each, draft)[0] for each in every))
    assert taken[0] < taken[1]
