"""Allocation: nodes go where they add most expected tokens; nothing depends on a child before it is drawn."""

from itertools import product

import numpy as np
import pytest

from engine.drafting.acceptance_model import AcceptanceModel, Hint
from engine.drafting.node_allocation import Siblings, marginal, spread
from engine.drafting.tree_shape import OptimalTree

ACCEPTANCE = (0.6, 0.2, 0.1, 0.05)


class ByRank(AcceptanceModel):
    """Chances that depend on the rank alone, as the paper has them."""

    def before(self, rank, likeliest):
        judged = 1 - sum(ACCEPTANCE[:rank])
        return ACCEPTANCE[rank] / judged if rank < len(ACCEPTANCE) else 0.0

    def after(self, rank, own):
        return self.before(rank, 0.0)


class Trusted(AcceptanceModel):
    """The draft is right as often as it says."""

    def before(self, rank, likeliest):
        return likeliest

    def after(self, rank, own):
        return own


def siblings(law, order=None, reached=1.0):
    """A node whose children come in this order, or the likeliest first."""
    ranked = sorted(enumerate(law), key=lambda pair: -pair[1])
    drawn = ranked if order is None else [(token, law[token]) for token in order]
    return Siblings(reached, ranked, lambda: drawn)


def worths(nodes, depth):
    table = OptimalTree(ACCEPTANCE, nodes + 1, depth).table
    return marginal(table[min(depth, len(table) - 1)])


@pytest.mark.parametrize("nodes", range(1, 13))
def test_where_rank_says_all_the_root_gets_what_the_optimal_shape_gives_it(nodes):
    depth = 4
    root = siblings([0.25] * 4)
    spread([root], nodes, worths(nodes, depth - 1), ByRank())
    best = OptimalTree(ACCEPTANCE, nodes + 1, depth)
    tables = OptimalTree(ACCEPTANCE, nodes + 1, depth - 1)
    reached = [child.reached for child in root.children]
    assert reached == pytest.approx(ACCEPTANCE[: len(reached)])
    worth = 1 + sum(
        r * tables.expected(1 + c.below, depth - 1)
        for r, c in zip(reached, root.children, strict=True)
    )
    assert worth == pytest.approx(
        best.expected(nodes + 1, depth)
    )  # another split may be worth as much


@pytest.mark.parametrize("nodes", [1, 2, 5, 9])
def test_no_split_of_the_nodes_over_a_level_is_worth_more(nodes):
    reached = (0.7, 0.2, 0.05)
    worth = worths(nodes, 3)
    level = [siblings([0.25] * 4, reached=r) for r in reached]
    spread(level, nodes, worth, ByRank())
    found = [[1 + child.below for child in s.children] for s in level]
    sums = np.concatenate(([0.0], np.cumsum(worth)))

    def value(split):
        return sum(
            r * ACCEPTANCE[rank] * sums[size]
            for r, sizes in zip(reached, split, strict=True)
            for rank, size in enumerate(sizes)
        )

    every = product(range(nodes + 1), repeat=6)  # two children of each node at most
    splits = ([each[:2], each[2:4], each[4:]] for each in every if sum(each) == nodes)
    assert value(found) >= max(map(value, splits)) - 1e-12
    assert sum(map(sum, found)) == nodes


def test_an_unlikely_draw_is_followed_by_the_likely_token_and_a_likely_one_by_nothing():
    law = [0.9, 0.05, 0.05]
    lucky, unlucky = siblings(law, (0, 1, 2)), siblings(law, (1, 0, 2))
    for root in (lucky, unlucky):
        spread([root], 4, worths(4, 3), Trusted())
    assert [c.token for c in lucky.children] == [0]
    assert [c.token for c in unlucky.children][:2] == [1, 0]
    assert unlucky.children[1].below > unlucky.children[0].below


def test_whether_a_child_is_drawn_does_not_depend_on_the_child():
    """Two orders that part at the third draw have the third child in both trees or in neither."""
    law = [0.4, 0.3, 0.2, 0.1]
    for nodes in range(1, 7):
        found = []
        for order in ((0, 1, 2, 3), (0, 1, 3, 2)):
            root = siblings(law, order)
            spread([root], nodes, worths(nodes, 3), Trusted())
            found.append([c.token for c in root.children])
        assert (len(found[0]) > 2) == (len(found[1]) > 2)
        assert found[0][:2] == found[1][:2]


def test_a_stop_token_has_no_children():
    root = siblings([0.7, 0.2, 0.1])
    spread([root], 5, worths(5, 3), Trusted(), stops=frozenset({0}))
    assert [c.below for c in root.children if c.token == 0] == [0]
    assert sum(1 + c.below for c in root.children) == 5


def test_what_cannot_be_spent_is_left_over():
    root = siblings([1.0])
    spread([root], 9, marginal(np.array([-np.inf, 1.0])), Trusted())
    assert [(c.token, c.below) for c in root.children] == [(0, 0)]


def test_marginal_worth_never_rises_and_leaves_out_what_does_not_fit():
    assert marginal(np.array([-np.inf, 1.0, 1.5, 2.5, -np.inf])) == [1.0, 0.5, 0.5]


# The acceptance model: averages of measured chances, by rank and by the draft's probability.


PROBABILITIES = (0.01, 0.1, 0.4, 0.7, 0.99)


def estimates(model):
    return [
        (model.before(rank, p), model.after(rank, p)) for rank in range(4) for p in PROBABILITIES
    ]


def test_a_guess_rises_with_the_drafts_own_probability():
    model = AcceptanceModel()
    for rank in range(4):
        after = [model.after(rank, p) for p in PROBABILITIES]
        assert after == sorted(after)
        assert 0 < after[0] < after[-1] < 1


def test_what_was_measured_takes_the_place_of_the_guess():
    model = AcceptanceModel()
    for _ in range(400):
        model.learn([Hint(0.6, 0.6), Hint(0.9, 0.03)], [0.8, 0.1, 0.0], [1.0, 0.5, 0.4])
    assert model.before(0, 0.6) == pytest.approx(0.8, abs=0.01)
    assert model.after(0, 0.6) == pytest.approx(1 - 0.5, abs=0.01)
    assert model.before(1, 0.9) == pytest.approx(0.1 / 0.5, abs=0.02)
    assert model.after(1, 0.03) == pytest.approx(1 - 0.4 / 0.5, abs=0.02)


def test_other_ranks_and_other_probabilities_are_not_touched():
    model, fresh = AcceptanceModel(), AcceptanceModel()
    model.learn([Hint(0.6, 0.6)], [1.0, 0.0], [1.0, 0.0])
    assert model.after(0, 0.4) == fresh.after(0, 0.4)
    assert model.after(1, 0.6) == fresh.after(1, 0.6)


def test_what_is_hardly_ever_judged_or_not_known_teaches_nothing():
    model, fresh = AcceptanceModel(), AcceptanceModel()
    model.learn([Hint(0.6, 0.6)], [0.0], [1e-6, 0.0])
    model.learn([Hint(0.6, 0.6)], [float("nan")], [float("nan"), float("nan")])
    assert estimates(model) == estimates(fresh)


def test_newer_evidence_weighs_more():
    model = AcceptanceModel()
    for share in (0.0, 1.0):
        for _ in range(1000):
            model.learn([Hint(0.6, 0.6)], [share, 0.0], [1.0, 1 - share])
    assert model.after(0, 0.6) > 0.9
