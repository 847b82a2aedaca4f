"""Exit counts: what every layer would have drafted, counted and faded."""

import numpy as np
import pytest
import torch

from engine.draft_length.exit_counts import ExitCounts, shadow_counts
from engine.draft_length.tuning import TUNING
from engine.request import SamplingParams
from engine.speculation.sampling import probabilities
from tests.engine.draft_length.exits import context, counts

MEMORY, WEIGHT = TUNING.request_memory, TUNING.guess_weight


def share(hits, seen, guess=TUNING.exit_guess[0]):
    """Acceptance of an exit; by default of the first."""
    return (hits + WEIGHT * guess) / (seen + WEIGHT)


def test_counts_decay_by_round_and_only_where_something_was_seen():
    before = counts([(0.9, True), (0.9, True), (0.3, False)], [(0.5, False)])
    fresh = counts([(0.7, False)], []).table
    now = before.after(fresh, MEMORY)
    assert now.alpha[0] == pytest.approx(share(2 * MEMORY, 3 * MEMORY + 1))
    assert np.array_equal(now.table[1], before.table[1])


def test_a_few_tokens_lean_on_those_of_all_requests():
    pool = counts([(0.9, True)] * 300 + [(0.9, False)] * 100, [])
    own = counts([(0.9, False)] * 2, [(0.5, True)])
    found = own.with_pool(pool)
    most = TUNING.pool_weight
    assert found.alpha[0] == pytest.approx(share(0.75 * most, most + 2))
    assert found.alpha[1] == own.alpha[1]
    assert np.array_equal(
        counts([], []).with_pool(own).table, own.table
    )  # so few count as they are


def test_guards_where_a_count_is_zero():
    known = counts([], [(0.8, True)], [(0.4, False)], [(1.0, True)] * 999)
    guesses = [0.5, 0.6, 0.7, 0.8]
    assert known.alpha.tolist() == pytest.approx(
        [0.0, share(1, 1, guesses[1]), share(0, 1, guesses[2]), TUNING.max_acceptance]
    )


def test_deeper_exits_are_expected_to_hold_more_often_until_they_are_measured():
    known = counts(*[[(0.5, False)]] * 7)
    assert (np.diff(known.alpha) > 0).all()
    assert counts(*[[(0.5, False)] * 50] * 7).alpha.max() < 0.04


def test_a_token_is_as_sure_as_those_of_its_confidence_were():
    known = counts([(0.9, True)] * 6 + [(0.9, False)] * 2)
    assert known.acceptance(1, 0.9) == pytest.approx((6 + WEIGHT * 0.9) / (8 + WEIGHT))
    assert known.acceptance(1, 0.1) == pytest.approx(0.1)  # nothing but what the draft says


def test_chosen_shadow_tokens_count_as_matches_and_misses():
    judged = torch.tensor([[0.0, 5.0, 0.0], [5.0, 0.0, 0.0]])
    exits = torch.tensor([[[0.0, 2.0, 0.0], [0.0, 0.0, 3.0]], [[1.0, 0.0, 0.0], [9.0, 0.0, 0.0]]])
    sure = torch.softmax(exits, -1).max(-1).values.double().tolist()
    wanted = counts([(sure[0][0], True), (sure[0][1], False)],
                    [(sure[1][0], False), (sure[1][1], True)])  # fmt: skip
    assert shadow_counts(exits, judged, context()) == pytest.approx(wanted.table)


def test_drawn_shadow_tokens_count_the_exact_acceptance_of_a_draw():
    sampling = SamplingParams(0.8, top_k=5)
    judged, exits = torch.randn(3, 9), torch.randn(2, 3, 9)
    found = ExitCounts(shadow_counts(exits, judged, context(sampling=sampling)))
    p, q = probabilities(judged, sampling), probabilities(exits, sampling)
    accepted = torch.minimum(p, q)
    assert found.table[:, 0].sum(1) == pytest.approx(accepted.sum((1, 2)).tolist())
    assert found.seen == pytest.approx([3.0, 3.0])


def test_a_seeded_request_counts_the_targets_probability_of_the_token():
    sampling = SamplingParams(0.7, seed=3)
    judged, exits = torch.randn(4, 9), torch.randn(2, 4, 9)
    counted = ExitCounts(shadow_counts(exits, judged, context(sampling=sampling)))
    best = exits.argmax(-1, keepdim=True)  # [L, N, 1]
    wanted = probabilities(judged, sampling).expand(2, 4, 9).gather(-1, best).sum((1, 2))
    assert counted.table[:, 0].sum(1) == pytest.approx(wanted.tolist())
    assert counted.seen == pytest.approx([4.0, 4.0])
