"""Acceptance by rank: what is computed is what verification does, by enumeration."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from engine.drafting.rank_acceptance import RankEvidence, chosen_ranks, drawn_ranks, padded
from engine.request import SamplingParams
from engine.speculation.tree import DraftTree
from engine.speculation.verify import verify
from tests.engine.enumeration import law_of, random_law

SAMPLED = SamplingParams(1.0)


def law(*shares):
    return torch.tensor(shares, dtype=torch.float64)


PAIRS = [
    (law(0.1, 0.5, 0.2, 0.2), law(0.7, 0.05, 0.2, 0.05)),
    (law(0.25, 0.25, 0.5), law(0.25, 0.25, 0.5)),
    (law(0.5, 0.5, 0.0, 0.0), law(0.0, 0.0, 0.5, 0.5)),
    (law(0.5, 0.25, 0.25), law(0.0, 1.0, 0.0)),
    (law(0.0, 1.0, 0.0), law(0.5, 0.25, 0.25)),
    *((random_law(4, s, s % 2), random_law(4, s + 50, (s + 1) % 3)) for s in range(6)),
    *((random_law(5, s, 0), random_law(5, s + 70, 0)) for s in range(2)),
]


def star(tokens, q=None):
    return DraftTree((0, *tokens), (-1, *(0 for _ in tokens)), q)


def taken(tree, p, chance):
    """Rank of the child that verification took, from 0; None when it took none."""
    path = verify(tree, p.log().repeat(len(tree), 1), SAMPLED, chance).path
    return path[1] - 1 if len(path) > 1 else None


def expected(run, width):
    """Mean of a vector that depends on random decisions, exactly."""
    laws = law_of(lambda chance: tuple(run(chance).tolist()))
    rows = torch.tensor(list(laws), dtype=torch.float64)[:, :width]
    return (rows.T @ torch.tensor(list(laws.values()), dtype=torch.float64)).tolist()


@pytest.mark.parametrize("width", [1, 2, 3])
@pytest.mark.parametrize(("p", "q"), PAIRS)
def test_the_mean_over_draws_is_how_often_verification_takes_each_rank(p, q, width):
    def computed(chance):
        drawn = padded([chance.draw_distinct(q, width)], width)
        return drawn_ranks(p[None], q[None], drawn).chances[0].nan_to_num(0.0)

    def run(chance):
        return taken(star(chance.draw_distinct(q, width), {0: q}), p, chance)

    counted = law_of(run)
    found = expected(computed, width)
    assert found == pytest.approx([counted.get(rank, 0.0) for rank in range(width)], abs=1e-12)


@pytest.mark.parametrize(("p", "q"), PAIRS)
def test_one_rank_more_than_was_drawn_is_known(p, q):
    """The chance of the next child needs the children before it, not itself."""

    def computed(width):
        def run(chance):
            drawn = padded([chance.draw_distinct(q, width)], width)
            return drawn_ranks(p[None], q[None], drawn).chances[0]

        return run

    assert expected(computed(1), 2) == pytest.approx(expected(computed(2), 2), abs=1e-12)


def test_a_rank_that_the_draft_has_no_mass_for_is_never_taken_and_an_undrawn_one_is_unknown():
    p, narrow = law(0.2, 0.3, 0.5), law(0.5, 0.5, 0.0)
    exhausted = drawn_ranks(p[None], narrow[None], padded([[0, 1]], 3)).chances[0]
    assert exhausted[2:].tolist() == [0, 0]
    short = drawn_ranks(p[None], law(0.3, 0.3, 0.4)[None], padded([[1]], 3)).chances[0]
    assert short.isnan().tolist() == [False, False, True, True]


def test_nodes_are_independent_rows():
    p = torch.stack([pair[0] for pair in PAIRS[-8:-2]])
    q = torch.stack([pair[1] for pair in PAIRS[-8:-2]])
    drawn = [[0, 1], [2], [], [3, 0], [1, 2], [0]]
    drawn = [[t for t in row if q[i, t] > 0] for i, row in enumerate(drawn)]
    together = drawn_ranks(p, q, padded(drawn, 2)).chances
    for i, row in enumerate(drawn):
        alone = drawn_ranks(p[i : i + 1], q[i : i + 1], padded([row], 2)).chances[0]
        assert torch.equal(together[i].nan_to_num(-1), alone.nan_to_num(-1))


@pytest.mark.parametrize(("p", "q"), PAIRS)
def test_arguments_are_never_modified(p, q):
    before = p.clone(), q.clone()
    drawn_ranks(p[None], q[None], padded([[int(q.argmax())]], 1))
    assert torch.equal(p, before[0])
    assert torch.equal(q, before[1])


@pytest.mark.parametrize(("p", "q"), PAIRS)
def test_a_chosen_candidate_is_taken_as_often_as_the_target_says_it(p, q):
    tokens = q.topk(2).indices.tolist()
    counted = law_of(lambda chance: taken(replace(star(tokens), q=None), p, chance))
    found = chosen_ranks(p[None], padded([tokens], 3)).chances[0]
    assert found[:2].tolist() == pytest.approx([counted.get(rank, 0.0) for rank in range(2)])
    assert bool(found[2].isnan())


def test_measured_ranks_are_averages_that_sum_to_one_at_most():
    evidence = RankEvidence()
    evidence.add(np.array([[0.6, 0.2, np.nan], [0.8, 0.4, 0.3]]))
    assert evidence.shares[:3] == pytest.approx([0.7, 0.3, 0.0])  # the third has no mass left
    assert (evidence.nodes, evidence.measured) == (2, 3)
