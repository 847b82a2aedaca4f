"""Sequoia learns: acceptance by rank, size and depth by cost."""

from dataclasses import replace

import pytest
import torch

from engine.drafters.sequoia import DEFAULT, Sequoia
from engine.interfaces.drafter import Budget, Context, DrafterResources, Outcome
from engine.request import Prior
from engine.speculation.rng import SeededRandom
from engine.speculation.verify import verify
from engine.statistics.pass_cost import PassCost
from tests.engine.drafters.test_sequoia import GREEDY, HOT, SEEDED, WARM, context, exact
from tests.engine.enumeration import law_of, random_law
from tests.engine.tiny import Markov


class Trial:
    """Rounds of one drafter over memoryless laws, so that every node has the same p and q."""

    def __init__(self, p, q, **parts):
        self.p, self.q, size = p, q, len(p)
        self.target, self.model = Markov(p.repeat(size, 1)), Markov(q.repeat(size, 1))
        self.drafter = Sequoia(DrafterResources(self.target, self.model, **parts))

    def play(self, rounds, budget, sampling=HOT, request=1, **fields):
        """Nodes drafted in each round."""
        chance, sizes = SeededRandom(7), []
        for _ in range(rounds):
            at = Context(request, 0, [0, 1], sampling, chance, **fields)
            tree = self.drafter.draft([at], [budget])[0]
            scores = self.target.score([0], [tree])[0]
            verdict = verify(tree, scores.logits, sampling, chance)
            self.drafter.observe([Outcome(at, tree, verdict, 0.0, 0.0, scores)])
            sizes.append(tree.drafted)
        return sizes

    def believed(self, sampling=HOT):
        return self.drafter._class(context(sampling)).evidence.shares


P, Q = random_law(6, 1), random_law(6, 2)


def true_ranks(p, q, width):
    """How often verification takes each of ``width`` children, exactly."""

    def run(chance):
        drawn = chance.draw_distinct(q, width)
        rest, offer = p, q.clone()
        for rank, token in enumerate(drawn):
            if chance.accept(float(rest[token]), float(offer[token] / offer.sum())):
                return rank
            rest = (rest - offer / offer.sum()).clamp(min=0)
            rest, offer[token] = rest / rest.sum(), 0
        return None

    laws = law_of(run)
    return [laws.get(rank, 0.0) for rank in range(width)]


def test_acceptance_is_learned_from_the_scores_of_past_rounds():
    trial = Trial(P, Q)
    trial.play(1000, exact(12, 3))
    assert trial.believed()[:3] == pytest.approx(true_ranks(P, Q, 3), abs=0.03)


def test_chosen_candidates_teach_by_their_probability():
    trial = Trial(P, Q)
    trial.play(60, exact(12, 3), replace(HOT, seed=1))
    wanted = P[Q.argsort(descending=True)].tolist()
    found = trial.drafter._class(context(replace(HOT, seed=1))).evidence.shares
    assert found[:2] == pytest.approx(wanted[:2], abs=0.05)


def test_what_was_learned_shapes_the_next_trees():
    """A draft that is always right wants a chain, one that never is wants width."""
    sure, lost = (
        Trial(P, P),
        Trial(torch.tensor([0, 0, 0.5, 0.5, 0, 0]), torch.tensor([0.4, 0.3, 0.1, 0.1, 0.05, 0.05])),
    )
    for trial in (sure, lost):
        trial.play(150, exact(8, 8))
    shapes = [t.drafter._class(context()).planned(9, 8).shape(9, 8) for t in (sure, lost)]
    assert shapes[0] == tuple(range(-1, 8))
    assert shapes[1].count(0) >= 3


def test_temperatures_and_ways_of_drafting_are_learned_separately():
    trial = Trial(P, Q)
    for sampling in (HOT, WARM, GREEDY, SEEDED):
        before = trial.believed(sampling)
        assert before[:6] == pytest.approx(DEFAULT[:6])
        trial.play(5, exact(8), sampling)
        assert trial.believed(sampling)[0] != pytest.approx(before[0])


def test_history_is_where_a_class_begins_and_what_a_request_showed_is_reported():
    trial = Trial(P, Q)
    prior = Prior("sequoia", shares=(0.2, 0.15, 0.1), share_weight=500.0)
    trial.play(1, exact(8), priors={"sequoia": prior})
    assert trial.believed()[0] == pytest.approx(0.2, abs=0.03)
    trial.play(30, exact(8), request=2)
    shares, weight = trial.drafter.shares(2)
    assert weight >= 30
    assert shares[0] == pytest.approx(float(torch.minimum(P, Q).sum()), abs=1e-6)
    assert sum(shares) <= 1 + 1e-9
    trial.drafter.forget(2, 0)
    assert trial.drafter.shares(2) == ((), 0.0)


# Size and depth from the measured cost.


def cost(per_row, flat=1.0):
    found = PassCost()
    for rows in (1, 2, 4, 8, 16, 32, 64):
        found.profile(rows, flat + per_row * rows)
    return found


def test_a_flat_pass_takes_the_whole_budget_and_a_steep_one_little():
    sizes = [Trial(P, Q, cost=cost(c)).play(3, Budget(8, 31))[-1] for c in (0.0, 0.02, 0.2)]
    assert sizes[0] == 31
    assert sizes[0] > sizes[1] > sizes[2] > 0


def test_what_was_found_under_other_limits_does_not_count():
    trial = Trial(P, Q, cost=cost(0.0))
    assert [trial.play(1, Budget(8, most))[0] for most in (31, 31, 7, 7, 31)] == [31, 31, 7, 7, 31]


def test_depth_is_not_bought_where_a_level_of_the_draft_costs_more_than_it_brings():
    trial = Trial(P, Q, cost=cost(0.001))
    trial.drafter._level.add(1.0, 5.0)  # five passes of the target
    tree = trial.drafter.draft([context()], [Budget(8, 31)])[0]
    assert max(tree.depth) <= 1
