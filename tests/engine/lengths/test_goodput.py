"""Goodput lengths: the argmax of the paper's formula, off when speculation loses, probing."""

from itertools import pairwise

import pytest

from engine.decode.tree import chain
from engine.decode.verify import Verdict
from engine.lengths.goodput import PROBE_FIRST, Goodput
from engine.protocols import Budget, Context, Outcome, Parts
from engine.request import SamplingParams

LONGEST = Budget(8, 8)
HERE = Context(1, 0, [1], SamplingParams(), None)


def outcome(drafted, accepted, draft_seconds, score_seconds):
    tree = chain(range(drafted + 1))
    return Outcome(HERE, tree, Verdict(tuple(range(accepted + 1)), 0), draft_seconds, score_seconds)


class Measured(Goodput):
    """A policy whose outcomes also reach the cost curve, as the engine does it."""

    def observe(self, outcomes):
        for o in outcomes:
            self._cost.observe(len(o.tree), 0, o.score_seconds)
        super().observe(outcomes)


def new():
    return Measured(Parts(None), "chain")


def taught(accept, flat, slope, draft, rounds=40):
    """A policy that saw ``rounds`` drafts of mixed lengths on a machine with this cost curve."""
    policy = new()
    for i in range(rounds):
        drafted = i % 5
        cost = flat + slope * (drafted + 1)
        policy.observe([outcome(drafted, min(accept, drafted), draft * drafted, cost)])
    return policy


def chosen(policy):
    return policy.budgets([HERE], [LONGEST])[0].depth


def test_cheap_sure_drafts_are_as_long_as_allowed():
    assert chosen(taught(accept=9, flat=10, slope=0, draft=0)) == LONGEST.depth


def test_useless_drafts_are_switched_off():
    assert chosen(taught(accept=0, flat=10, slope=1, draft=3)) == 0


def test_a_steep_pass_shortens_drafts():
    def half_sure(slope):
        policy = new()
        for accepted in (0, 1, 0, 2, 0, 1, 0, 3) * 8:  # one half at every depth
            policy.observe([outcome(4, accepted, 0.4, 10 + 5 * slope)])
            policy.observe([outcome(0, 0, 0, 10 + slope)])
        return chosen(policy)

    assert half_sure(slope=8) < half_sure(slope=1) < half_sure(slope=0.05)


def test_a_new_request_starts_by_speculating():
    assert chosen(new()) == LONGEST.depth


def test_while_off_it_probes_with_growing_intervals():
    policy = taught(accept=0, flat=10, slope=1, draft=3)
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
    assert waits[-1] >= 4 * PROBE_FIRST


def test_fresh_luck_switches_it_on_again():
    policy = taught(accept=0, flat=10, slope=0.2, draft=0.2)
    assert chosen(policy) == 0
    for _ in range(20):
        policy.observe([outcome(4, 4, 0.8, 11)])
    assert chosen(policy) > 0


def test_requests_do_not_share_acceptance_but_share_costs():
    policy = taught(accept=0, flat=10, slope=1, draft=3)
    other = Context(2, 1, [1], SamplingParams(), None)
    assert policy.budgets([HERE, other], [LONGEST, LONGEST])[0].depth == 0
    assert policy.budgets([HERE, other], [LONGEST, LONGEST])[1].depth > 0
    policy.forget(1)
    assert chosen(policy) > 0


@pytest.mark.parametrize("longest", [Budget(0, 0), Budget(1, 1), Budget(3, 24)])
def test_never_more_than_allowed(longest):
    for policy in (new(), taught(9, 10, 0, 0), taught(0, 10, 1, 3)):
        budget = policy.budgets([HERE], [longest])[0]
        assert budget.depth <= longest.depth
        assert budget.nodes <= longest.nodes
