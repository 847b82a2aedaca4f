"""Sequoia: budgets are spent along the optimal shape, the law is kept, acceptance is learned."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import torch

from engine.cost import PassCost
from engine.decode.chance import SeededChance
from engine.decode.rank_evidence import Lift
from engine.decode.sampling import probabilities
from engine.decode.shape import uniform
from engine.decode.verify import verify
from engine.drafters.sequoia import DEFAULT, PROBE_FIRST, WIDTH, Sequoia, measure_acceptance
from engine.protocols.drafting import Budget, Context, Outcome, Parts
from engine.request import GenerationRequest, Prior, SamplingParams
from tests.engine.enumeration import law_of, random_law
from tests.engine.tiny import Markov, engine_over, run_all, tiny_target

HOT, WARM, GREEDY = SamplingParams(1.0), SamplingParams(0.6), SamplingParams()
SEEDED = SamplingParams(1.0, seed=4)
VOCAB = 13


class Counting:
    """A draft model that counts its passes and rows."""

    def __init__(self, model):
        self.model, self.passes = model, []

    def __getattr__(self, name):
        return getattr(self.model, name)

    def grow(self, batch):
        self.passes.append([len(rows.tokens) for rows in batch])
        return self.model.grow(batch)


def sequoia_over(draft=None, cost=None, **options):
    draft = draft or tiny_target(5, sharpness=1.0)
    return Sequoia(Parts(tiny_target(), draft, cost=cost or PassCost(), options=options))


def context(sampling=HOT, request=1, chance=None, **fields):
    chance = chance or SeededChance(request)
    return Context(request, fields.pop("slot", 0), [3, 1, 2], sampling, chance, **fields)


def drafted(drafter, budget, **fields):
    return drafter.draft([context(**fields)], [budget])[0]


def exact(nodes, depth=8):
    return Budget(depth, nodes, exact=True)


# Shapes and budgets.


@pytest.mark.parametrize("sampling", [HOT, WARM, GREEDY, SEEDED])
@pytest.mark.parametrize(("nodes", "depth"), [(1, 1), (5, 8), (16, 3), (64, 8), (64, 2), (9, 64)])
def test_an_exact_budget_is_spent_in_full(sampling, nodes, depth):
    tree = drafted(sequoia_over(), exact(nodes, depth), sampling=sampling)
    assert tree.drafted == nodes
    assert max(tree.depth) <= depth


def test_a_budget_that_no_tree_can_spend_is_spent_as_far_as_possible():
    tree = drafted(sequoia_over(), exact(64, 1))
    assert tree.drafted == VOCAB  # every token of the vocabulary under the root


@pytest.mark.parametrize(
    "budget", [Budget(0, 9, exact=True), Budget(9, 0, exact=True), Budget(0, 0)]
)
def test_no_budget_no_draft_and_no_pass(budget):
    model = Counting(tiny_target(5))
    assert drafted(sequoia_over(model), budget).drafted == 0
    assert model.passes == []


def test_the_tree_has_the_optimal_shape_for_what_is_believed():
    drafter = sequoia_over()
    tree = drafted(drafter, exact(24))
    known = drafter._class(context())
    assert tree.parents == known.planned(25, 8).shape(25, 8).parents
    assert known.evidence.shares[:VOCAB] == pytest.approx(DEFAULT[:VOCAB])


def test_siblings_are_distinct_and_inner_nodes_alone_have_a_law():
    tree = drafted(sequoia_over(), exact(40))
    for node, children in enumerate(tree.children):
        assert len({tree.tokens[c] for c in children}) == len(children)
        assert (node in tree.q) == bool(children)


def test_the_law_handed_over_is_the_one_drawn_from():
    draft = Markov(torch.stack([random_law(3, row) for row in range(3)]))
    drafter = Sequoia(Parts(Markov(torch.full((3, 3), 1 / 3)), draft))
    context = Context(1, 0, [0, 1], WARM, SeededChance(1))
    tree = drafter.draft([context], [exact(9, 3)])[0]
    for node, law in tree.q.items():
        wanted = probabilities(draft._logits[tree.tokens[node]], WARM)
        assert torch.equal(law, wanted)


def test_chosen_candidates_are_the_likeliest_and_take_no_randomness():
    draft = Markov(torch.stack([random_law(5, row) for row in range(5)]))
    drafter = Sequoia(Parts(Markov(torch.full((5, 5), 0.2)), draft))
    for sampling in (GREEDY, SEEDED):
        tree = drafter.draft([Context(1, 0, [0, 1], sampling, None)], [exact(9, 3)])[0]
        assert tree.q is None
        for node, children in enumerate(tree.children):
            best = draft._logits[tree.tokens[node]].topk(5).indices.tolist()
            assert [tree.tokens[c] for c in children] == best[: len(children)]


# One pass of the draft model for each level.


def test_one_pass_for_each_level_and_leaves_are_not_fed():
    model = Counting(tiny_target(5, sharpness=1.0))
    tree = drafted(sequoia_over(model), exact(40))
    inner = [node for node, children in enumerate(tree.children) if children]
    by_level = [[tree.depth[n] for n in inner].count(d) for d in range(max(tree.depth))]
    assert model.passes == [
        [3],
        *([rows] for rows in by_level[1:]),
    ]  # the prompt's rows, then levels


def test_requests_grow_together_as_they_would_alone():
    samplings = [HOT, GREEDY, WARM]
    budgets = [exact(20), exact(5, 2), exact(12, 4)]
    model = Counting(tiny_target(5, sharpness=1.0))
    batch = [context(s, request=r, slot=r) for r, s in enumerate(samplings)]
    together = sequoia_over(model).draft(batch, budgets)
    alone = [
        drafted(sequoia_over(), b, sampling=s, request=r)
        for r, (s, b) in enumerate(zip(samplings, budgets, strict=True))
    ]
    assert [(t.tokens, t.parents) for t in together] == [(t.tokens, t.parents) for t in alone]
    assert len(model.passes) == max(max(t.depth) for t in together)


# What ends a branch.


def test_nothing_follows_a_stop_token():
    tree = drafted(sequoia_over(), exact(64), stop_tokens=frozenset(range(6)))
    stopped = [n for n in range(1, len(tree)) if tree.tokens[n] < 6]
    assert stopped
    assert not any(tree.children[n] for n in stopped)


def test_children_end_where_the_drafts_mass_ends():
    sampling = SamplingParams(1.0, top_k=2)
    tree = drafted(sequoia_over(), exact(64), sampling=sampling)
    assert max(len(children) for children in tree.children) == 2
    assert all(float(tree.q[tree.parents[n]][tree.tokens[n]]) > 0 for n in range(1, len(tree)))


def test_the_drafts_own_context_bounds_the_depth():
    tree = drafted(sequoia_over(tiny_target(5, context=5)), exact(20))
    assert max(tree.depth) == 2
    assert drafted(sequoia_over(tiny_target(5, context=3)), exact(20)).drafted == 0


# The law, for the comparison modes too.


@pytest.mark.parametrize(
    ("options", "stops", "nodes"),
    [
        ({}, frozenset(), 3),
        ({}, frozenset({1}), 3),
        ({"arity": 2.0}, frozenset(), 3),
        ({"replacement": 1.0, "arity": 2.0}, frozenset(), 2),
    ],
)
def test_joint_law_of_emitted_tokens_is_the_targets(options, stops, nodes):
    laws = torch.stack([random_law(3, row) for row in range(3)])
    others = torch.stack([random_law(3, 10 + row, zeros=row % 2) for row in range(3)])
    length = 2

    def run(chance):
        target = Markov(laws)
        drafter = Sequoia(Parts(target, Markov(others), options=options))
        ids = [0, 1]
        target.feed(0, ids[:-1])
        while len(ids) < 2 + length:
            at = Context(1, 0, list(ids), HOT, chance, stops)
            tree = drafter.draft([at], [exact(nodes, 2)])[0]
            scores = target.score([0], [tree])[0]
            verdict = verify(tree, scores.logits, HOT, chance)
            drafter.observe([Outcome(at, tree, verdict, 0.0, 0.0, scores)])
            target.commit(0, verdict.path)
            ids += [*(tree.tokens[n] for n in verdict.path[1:]), verdict.bonus]
        return tuple(ids[2 : 2 + length])

    found = law_of(run)
    for first, second in product(range(3), repeat=2):
        wanted = float(laws[1][first] * laws[first][second])
        assert found.get((first, second), 0.0) == pytest.approx(wanted, abs=1e-12)


def test_uniform_trees_are_drawn_when_asked_for():
    tree = drafted(sequoia_over(arity=3.0), exact(25))
    assert tree.parents == uniform(3, 26, 8).parents


def test_replacement_draws_duplicates_and_says_so():
    draft = Markov(torch.tensor([[0.9, 0.05, 0.05]]).repeat(3, 1))
    drafter = Sequoia(Parts(Markov(torch.full((3, 3), 1 / 3)), draft, options={"replacement": 1.0}))
    tree = drafter.draft([Context(1, 0, [0, 1], HOT, SeededChance(1))], [exact(20, 3)])[0]
    assert tree.replaced
    assert any(
        len({tree.tokens[c] for c in children}) < len(children) for children in tree.children
    )
    greedy = drafter.draft([Context(2, 1, [0, 1], GREEDY, None)], [exact(20, 3)])[0]
    assert not greedy.replaced


# Learning.


class Trial:
    """Rounds of one drafter over memoryless laws, so that every node has the same p and q."""

    def __init__(self, p, q, **parts):
        self.p, self.q, size = p, q, len(p)
        self.target, self.model = Markov(p.repeat(size, 1)), Markov(q.repeat(size, 1))
        self.drafter = Sequoia(Parts(self.target, self.model, **parts))

    def play(self, rounds, budget, sampling=HOT, request=1, **fields):
        """Nodes drafted in each round."""
        chance, sizes = SeededChance(7), []
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
    trial.play(400, exact(12, 3))
    assert trial.believed()[:3] == pytest.approx(true_ranks(P, Q, 3), abs=0.03)


def test_measuring_offline_gives_what_is_learned_online():
    texts = [
        ([0, *np.random.default_rng(seed).integers(0, 6, 40).tolist()], 1) for seed in range(8)
    ]
    models = Markov(P.repeat(6, 1)), Markov(Q.repeat(6, 1))
    found = measure_acceptance(models, HOT, texts, SeededChance(1), 3)
    assert found == pytest.approx(true_ranks(P, Q, 3), abs=0.03)
    greedy = measure_acceptance(models, GREEDY, texts, SeededChance(1), 6)
    place = Q.argsort(descending=True).tolist().index(int(P.argmax()))
    assert greedy == pytest.approx(np.eye(6)[place])
    seeded = measure_acceptance(models, SEEDED, texts, SeededChance(1), 6)
    assert seeded == pytest.approx(P[Q.argsort(descending=True)].tolist())


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
    assert shapes[0].depth == 8
    assert len(shapes[1].children[0]) >= 3


def test_temperatures_and_ways_of_drafting_are_learned_apart():
    trial = Trial(P, Q)
    for sampling in (HOT, WARM, GREEDY, SEEDED):
        before = trial.believed(sampling)
        assert before[:6] == pytest.approx(DEFAULT[:6])
        trial.play(5, exact(8), sampling)
        assert trial.believed(sampling)[0] != pytest.approx(before[0])


def test_shapes_are_kept_while_the_acceptance_stays():
    trial = Trial(P, Q)
    trial.play(300, exact(12, 3))
    plans = set()
    for _ in range(40):
        trial.play(1, exact(12, 3))
        plans.add(id(trial.drafter._class(context()).plan))
    assert len(plans) <= 4


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


def test_where_no_tree_pays_none_is_drafted_but_now_and_then():
    sizes = Trial(P, Q, cost=cost(50.0)).play(6 * PROBE_FIRST, Budget(8, 31))
    probes = [at for at, size in enumerate(sizes) if size]
    assert probes == [PROBE_FIRST, 3 * PROBE_FIRST + 1]  # the second one waits twice as long


def test_depth_is_not_bought_where_a_level_of_the_draft_costs_more_than_it_brings():
    trial = Trial(P, Q, cost=cost(0.001))
    trial.drafter._level.add(1.0, 5.0)  # five passes of the target
    tree = trial.drafter.draft([context()], [Budget(8, 31)])[0]
    assert max(tree.depth) <= 1


# Through the engine.


def test_the_engine_reports_what_was_measured():
    engine = engine_over(tiny_target(sharpness=1.0), tiny_target(4, sharpness=1.0))
    request = GenerationRequest((1, 2, 3), 40, HOT, drafter="sequoia", length="fixed")
    [(_, done)] = run_all(engine, [request])
    run = done.stats.runs[0]
    assert run.share_weight >= run.passes / 2
    assert 0 < len(run.shares) <= WIDTH
    assert 0 < run.shares[0] < 1


def test_an_identical_draft_is_taken_to_the_end_every_time():
    engine = engine_over(tiny_target(), tiny_target())
    request = GenerationRequest((1, 2, 3), 36, GREEDY, drafter="sequoia", length="fixed",
                                draft_depth=8, draft_nodes=32)  # fmt: skip
    [(ids, done)] = run_all(engine, [request])
    plain = run_all(engine_over(tiny_target()), [replace(request, drafter="none")])
    assert ids == plain[0][0]
    assert done.stats.emitted / done.stats.passes > 5


# What leaves-first verification adds to acceptance by rank.


def test_a_lift_is_learned_where_paths_make_up_for_their_tokens(monkeypatch):
    """A draft that errs now one way, now the other: whole paths are likelier than their tokens."""
    monkeypatch.setattr("engine.decode.rank_evidence.LIFT_FORGETTING", 1.0)
    monkeypatch.setattr("engine.drafters.sequoia.EAGER_NODES", 10**9)
    found = []
    for budget in (exact(12, 6), exact(3, 1)):
        trial = Trial(P, Q)
        trial.play(1500, budget)
        lift = trial.drafter._class(context()).lift
        found.append(lift.kept / lift.expected)
    assert found[0] > 1.03
    assert found[1] == pytest.approx(1.0, abs=0.03)  # one level: nothing stands below


def test_lifted_shares_stay_a_law():
    lift = Lift(kept=30.0, expected=20.0)
    assert lift.over(np.array([0.4, 0.1])) == pytest.approx([0.6, 0.15])
    assert lift.over(np.array([0.7, 0.2])).sum() == pytest.approx(1.0)
    assert Lift(kept=10.0, expected=20.0).over(np.array([0.5])) == pytest.approx([0.5])
