"""Goodput at its edges: intervals, offers, priors and floors stay within their bounds."""

import pytest

from engine.draft_length.acceptance import DecayedCounts
from engine.draft_length.goodput import (
    BELIEVED,
    HISTORY_WEIGHT,
    LEAST_FLOOR,
    PROBE_FIRST,
    PROBE_LAST,
    _budget,
    _Offer,
    _offers,
    _open,
    _queue,
    _started,
    _Trace,
)
from engine.interfaces.drafter import Budget
from engine.request import Prior
from tests.engine.draft_length.test_goodput import HERE, LONGEST, new, outcome, taught


def test_probes_never_stand_farther_apart_than_the_last_interval():
    trace, waits = _Trace(plain=10**9), []
    for _ in range(20):
        assert _budget(trace, LONGEST, (0, 2, 0), 0.0).depth == 2
        waits.append(trace.wait)
    assert waits[:2] == [2 * PROBE_FIRST, 4 * PROBE_FIRST]
    assert waits[-1] == PROBE_LAST


def test_a_larger_tree_is_never_expected_to_bring_less():
    trace = _Trace(
        sizes={
            0: DecayedCounts(90.0, 100.0),
            1: DecayedCounts(10.0, 100.0),
            2: DecayedCounts(300.0, 100.0),
        }
    )
    gains = [offer.gain for offer in _offers(trace, Budget(4, 8), [])]
    assert gains[1] == 0
    assert min(gains) >= 0
    assert sum(gains) == pytest.approx(max(trace.tree_gain(n) for n in range(4)))


def test_an_offer_is_taken_after_the_ones_before_it_however_much_it_brings():
    first, better = _Offer(1, 1, 0.2), _Offer(1, 2, 0.9)
    other = _Offer(1, 1, 0.5)
    assert _queue([[first, better], [other]]) == [(1, other), (0, first), (0, better)]


def test_who_was_asked_and_had_nothing_to_propose_is_not_switched_off():
    policy = new()
    trace = policy._trace(HERE)
    trace.asked = 4
    policy.observe([outcome(0, 0, 0.0, 1.0)])
    assert trace.plain == 0
    trace.asked = 0
    policy.observe([outcome(0, 0, 0.0, 1.0)])
    assert trace.plain == 1


def test_one_round_that_drafts_may_be_a_probe_and_is_not_believed():
    policy = taught(accept=9, flat=10, slope=0, draft=0)
    assert policy._drafts([HERE], [LONGEST]) == [True]
    assert policy._believed == 0
    assert policy._drafts([HERE], [LONGEST]) == [True]
    assert policy._believed == BELIEVED


def test_a_node_must_bring_something_also_where_rows_are_free():
    prices = (0.0,) * 9
    assert _open(Budget(3, 8, floor=0.0), Budget(4, 8), prices).floor == LEAST_FLOOR
    assert _open(Budget(3, 8, floor=0.3), Budget(4, 8), prices).floor == 0.3


def test_history_makes_no_depth_certain_or_hopeless_or_heavier_than_it_may_be():
    trace = _started(Prior("chain", ((900.0, 900.0), (9.0, 0.0), (0.0, 0.0), (9.0, 9.0))))
    rates = [depth.hits / depth.trials for depth in trace.earlier]
    assert rates == pytest.approx([0.98, 0.05])
    assert [depth.trials for depth in trace.earlier] == [HISTORY_WEIGHT, 9.0]
