"""Acceptance by depth: counts of evaluated tokens only, faded, one request leaning on all."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.draft_length.goodput import DepthAcceptance, pooled, shrunk
from engine.draft_length.tuning import TUNING

MEMORY = TUNING.request_memory
walks = st.lists(st.tuples(st.integers(0, 8), st.booleans()), max_size=60)


def after(walks, memory=MEMORY):
    depths = DepthAcceptance(memory)
    for accepted, refused in walks:
        depths.note(accepted, refused=refused)
    return depths


def test_nothing_known_is_optimism_at_every_depth():
    assert pooled(DepthAcceptance(MEMORY), 3) == [TUNING.guess] * 3
    assert shrunk(DepthAcceptance(MEMORY), [0.5, 0.4]) == pytest.approx([0.5, 0.4])


def test_tokens_after_a_refusal_were_not_evaluated():
    depths = after([(2, True)])
    assert [(d.hits, d.trials) for d in depths.counts] == [(1, 1), (1, 1), (0, 1)]


def test_a_walk_that_was_not_refused_says_nothing_of_the_next_depth():
    assert len(after([(2, False)]).counts) == 2


@given(walks, walks)
def test_rates_are_probabilities_whatever_was_walked(own, others):
    pool = pooled(after(others), 9)
    rates = shrunk(after(own), pool)
    assert all(0 <= rate <= TUNING.max_acceptance for rate in [*pool, *rates])
    assert len(rates) == 9


@given(st.floats(0.1, 0.9))
def test_much_evidence_overrules_the_pool(share):
    own = DepthAcceptance(MEMORY)
    taken = 0.0
    for n in range(200):  # as even a sequence as there is
        hit = (n + 1) * share - taken >= 1
        taken += hit
        own.note(int(hit), refused=not hit)
    assert shrunk(own, [0.5])[0] == pytest.approx(share, abs=0.2)


def test_what_is_known_of_depths_that_are_not_reached_grows_stale():
    depths = after([(3, True)] * 10)
    before = depths.at(3).trials
    for _ in range(20):
        depths.note(0, refused=True)
    assert depths.at(3).trials < before / 2


def test_a_request_that_does_better_than_the_pool_is_expected_to_continue():
    pool = [0.5, 0.5, 0.5]
    lucky = shrunk(after([(1, False)] * 30), pool)
    assert lucky[0] > 0.8
    assert lucky[2] > 0.6
