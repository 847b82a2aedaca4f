"""Sequoia: budgets are spent along the optimal shape, the law is kept."""

from dataclasses import replace
from itertools import permutations

import pytest
import torch

from engine.drafters.sequoia import DEFAULT, WIDTH, Sequoia
from engine.drafting.acceptance_model import AcceptanceModel
from engine.drafting.tree_shape import uniform
from engine.interfaces.drafter import Budget, Context, DrafterResources
from engine.request import GenerationRequest, SamplingParams
from engine.speculation.rng import SeededRandom
from engine.statistics.pass_cost import PassCost
from tests.engine.drafters.trees import Counting
from tests.engine.drafting.test_node_allocation import Trusted
from tests.engine.enumeration import assert_joint_law, law_of, random_law
from tests.engine.tiny import Markov, decoded, engine_over, run_all, tiny_target

HOT, WARM, GREEDY = SamplingParams(1.0), SamplingParams(0.6), SamplingParams()
SEEDED = SamplingParams(1.0, seed=4)
VOCAB = 13


def sequoia_over(draft=None, cost=None, **options):
    draft = draft or tiny_target(5, sharpness=1.0)
    return Sequoia(DrafterResources(tiny_target(), draft, cost=cost or PassCost(), options=options))


def context(sampling=HOT, request=1, chance=None, **fields):
    chance = chance or SeededRandom(request)
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


def test_the_static_tree_has_the_optimal_shape_for_what_is_believed():
    drafter = sequoia_over(static=1.0)
    tree = drafted(drafter, exact(24))
    known = drafter._class(context())
    assert tree.parents == known.planned(25, 8).shape(25, 8)
    assert known.evidence.shares[:VOCAB] == pytest.approx(DEFAULT[:VOCAB])


def test_nodes_go_where_the_draft_is_sure_and_width_where_it_is_not():
    """Behind token 0 the draft knows what follows, behind token 1 it knows nothing."""
    sure, lost = torch.full((6,), 1e-6), torch.full((6,), 1 / 6)
    sure[0] = 1.0
    draft = Markov(torch.stack([sure, lost, lost, lost, lost, lost]))
    drafter = Sequoia(DrafterResources(Markov(torch.full((6, 6), 1 / 6)), draft))
    trees = [
        drafter.draft([Context(token, token, [3, token], HOT, SeededRandom(1))], [exact(6, 6)])[0]
        for token in (0, 1)
    ]
    assert max(trees[0].depth) > max(trees[1].depth)
    assert len(trees[0].children[0]) < len(trees[1].children[0])


def test_chosen_candidates_are_the_likeliest_and_take_no_randomness():
    draft = Markov(torch.stack([random_law(5, row) for row in range(5)]))
    drafter = Sequoia(DrafterResources(Markov(torch.full((5, 5), 0.2)), draft))
    for sampling in (GREEDY, SEEDED):
        tree = drafter.draft([Context(1, 0, [0, 1], sampling, None)], [exact(9, 3)])[0]
        assert tree.q is None
        for node, children in enumerate(tree.children):
            best = draft._logits[tree.tokens[node]].topk(5).indices.tolist()
            assert [tree.tokens[c] for c in children] == best[: len(children)]


# One pass of the draft model for each level.


def test_a_spread_tree_takes_one_pass_for_each_level_and_feeds_what_may_get_children():
    model = Counting(tiny_target(5, sharpness=1.0))
    tree = drafted(sequoia_over(model), exact(40))
    inner = [node for node, children in enumerate(tree.children) if children]
    by_level = [[tree.depth[n] for n in inner].count(d) for d in range(max(tree.depth))]
    assert len(model.passes) == max(tree.depth)
    assert all(fed >= grown for [fed], grown in zip(model.passes, by_level, strict=True))
    assert sum(fed for [fed] in model.passes[1:]) < tree.drafted


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


LAWS = torch.stack([random_law(3, row) for row in range(3)])
VAGUE = torch.stack([random_law(3, 10 + row, zeros=row % 2) for row in range(3)])
SURE = torch.tensor([[0.9, 0.06, 0.04], [0.1, 0.85, 0.05], [0.03, 0.07, 0.9]]).double()


NO_STOPS, ONE_STOP = frozenset(), frozenset({1})


@pytest.mark.parametrize(("odds", "draft", "options", "stops", "nodes"), [
    (AcceptanceModel, VAGUE, {}, NO_STOPS, 3),
    (Trusted, VAGUE, {}, NO_STOPS, 3),
    (Trusted, SURE, {}, NO_STOPS, 3),
    (Trusted, SURE, {}, ONE_STOP, 3),
    (AcceptanceModel, VAGUE, {"static": 1.0}, NO_STOPS, 3),
    (AcceptanceModel, VAGUE, {"arity": 2.0}, NO_STOPS, 3),
    (AcceptanceModel, VAGUE, {"replacement": 1.0, "arity": 2.0}, NO_STOPS, 2),
])  # fmt: skip
def test_joint_law_of_emitted_tokens_is_the_targets(
    monkeypatch, odds, draft, options, stops, nodes
):
    monkeypatch.setattr("engine.drafters.sequoia.AcceptanceModel", odds)
    length = 2

    def run(chance):
        target = Markov(LAWS)
        drafter = Sequoia(DrafterResources(target, Markov(draft), options=options))
        ids = [0, 1]
        target.feed(0, ids[:-1])
        about = {"sampling": HOT, "rng": chance, "stop_tokens": stops}

        def grown(at):
            return drafter.draft([at], [exact(nodes, 2)])[0]

        for outcome in decoded(target, ids, length, grown, **about):
            drafter.observe([outcome])
        return tuple(ids[2 : 2 + length])

    assert_joint_law(law_of(run), LAWS, last=1, length=length)


def test_how_many_siblings_there_are_hangs_on_their_elders_alone(monkeypatch):
    """So the joint law above is that of trees whose shape is drawn, too."""
    monkeypatch.setattr("engine.drafters.sequoia.AcceptanceModel", Trusted)

    def families(chance):
        drafter = Sequoia(DrafterResources(Markov(LAWS), Markov(SURE)))
        tree = drafter.draft([Context(1, 0, [0, 1], HOT, chance)], [exact(3, 2)])[0]
        return tuple(tuple(tree.tokens[c] for c in children) for children in tree.children)

    found = {children[0] for children in law_of(families)}
    assert len({len(children) for children in found}) > 1
    assert all(longer[: len(short)] != short for short, longer in permutations(found, 2))


def test_uniform_trees_are_drawn_when_asked_for():
    tree = drafted(sequoia_over(arity=3.0), exact(25))
    assert tree.parents == uniform(3, 26, 8)


def test_replacement_draws_duplicates_and_says_so():
    draft = Markov(torch.tensor([[0.9, 0.05, 0.05]]).repeat(3, 1))
    drafter = Sequoia(
        DrafterResources(Markov(torch.full((3, 3), 1 / 3)), draft, options={"replacement": 1.0})
    )
    tree = drafter.draft([Context(1, 0, [0, 1], HOT, SeededRandom(1))], [exact(20, 3)])[0]
    assert tree.replaced
    assert any(
        len({tree.tokens[c] for c in children}) < len(children) for children in tree.children
    )
    greedy = drafter.draft([Context(2, 1, [0, 1], GREEDY, None)], [exact(20, 3)])[0]
    assert not greedy.replaced


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
