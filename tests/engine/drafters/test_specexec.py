"""SpecExec: the tree holds the likeliest paths, within its limits, at the price that was agreed."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from engine.drafters.specexec import DECAY, SpecExec, _likeliest
from engine.errors import InvalidRequest
from engine.interfaces.drafter import Budget, Context, DrafterResources, Outcome
from engine.request import SamplingParams
from engine.speculation.tree import chain
from engine.speculation.verify import Verdict
from engine.statistics.pass_cost import PassCost
from tests.engine.drafters.trees import Counting, paths
from tests.engine.enumeration import random_law
from tests.engine.tiny import Markov, tiny_target

seeds = st.integers(0, 10_000)
SLOW = PassCost({1: 1e12})  # a target behind which every wave earns its pass


def laws(seed, size=5):
    return torch.stack([random_law(size, 977 * seed + row) for row in range(size)])


def context(ids, slot=0, stops=()):
    return Context(slot + 1, slot, ids, SamplingParams(), None, frozenset(stops))


def specexec(model, cost=None, **options):
    return SpecExec(DrafterResources(model, model, cost=cost or PassCost(), options=options))


def grown(model, budget, ids=(1, 2, 0), stops=(), **options):
    return specexec(model, SLOW, **options).draft([context(ids, stops=stops)], [budget])[0]


def exact(depth, nodes):
    return Budget(depth, nodes, exact=True)


def score(table, root, path, decay=DECAY.default):
    """Decayed probability of a path under a Markov draft."""
    total = 1.0
    for token in path:
        total, root = total * decay * float(table[root, token]), token
    return total


def every_path(size, depth):
    shorter = [()]
    for _ in range(depth):
        shorter = [(*path, token) for path in shorter for token in range(size)]
        yield from shorter


@given(seeds, st.integers(0, 40), st.integers(0, 5), st.integers(1, 9), st.integers(1, 5))
def test_limits_hold_and_siblings_differ(seed, nodes, depth, wave, branch):
    tree = grown(Markov(laws(seed)), exact(depth, nodes), wave=wave, branch=branch)
    assert tree.drafted <= nodes
    assert max(tree.depth) <= depth
    assert max(len(children) for children in tree.children) <= branch
    assert len(set(paths(tree))) == tree.drafted


@given(seeds, st.integers(1, 40), st.integers(1, 4), st.sampled_from([0.5, DECAY.default]))
def test_an_unlimited_search_finds_the_best_paths(seed, nodes, depth, decay):
    """Brute force over all paths; compared by score, since equal scores may be exchanged."""
    table = laws(seed)
    tree = grown(Markov(table), exact(depth, nodes), wave=128, branch=64, decay=decay)
    found = sorted((score(table, 0, path, decay) for path in paths(tree)), reverse=True)
    wanted = sorted((score(table, 0, path, decay) for path in every_path(5, depth)), reverse=True)
    assert found == pytest.approx(wanted[:nodes], rel=1e-9)


@given(seeds, st.integers(1, 40), st.integers(1, 4))
def test_candidates_that_lost_a_cut_are_expanded_later(seed, nodes, depth):
    """One expansion a wave is Dijkstra's search: the same tree in more passes."""
    table = laws(seed)
    narrow = grown(Markov(table), exact(depth, nodes), wave=1, waves=1000)
    wide = grown(Markov(table), exact(depth, nodes), wave=128)
    best = [sorted(score(table, 0, p) for p in paths(tree)) for tree in (narrow, wide)]
    assert best[0] == pytest.approx(best[1], rel=1e-9)


@given(seeds, st.integers(1, 40))
def test_without_decay_a_certain_draft_still_gives_a_closed_tree(seed, nodes):
    """A child of probability 1 scores like its parent: the cut must keep the parent."""
    certain = torch.eye(5, dtype=torch.float64).roll(seed % 5, 1)
    tree = grown(Markov(certain), exact(nodes, nodes), decay=1, branch=1)
    assert tree.is_chain
    assert tree.drafted == min(nodes, 32)  # one level for each wave


@pytest.mark.parametrize(("depth", "nodes"), [(0, 8), (8, 0), (0, 0)])
def test_no_budget_feeds_nothing(depth, nodes):
    model = Counting(Markov(laws(1)))
    assert grown(model, exact(depth, nodes)).tokens == (0,)
    assert model.passes == []


def test_a_crowded_search_is_cut_and_loses_nothing(monkeypatch):
    def searched():
        """The tree, and how often nodes were renumbered on the way to it."""
        drafter, cuts = specexec(Markov(laws(8)), SLOW, wave=2, waves=99), []
        relabel = drafter._cache.relabel
        monkeypatch.setattr(drafter._cache, "relabel", lambda *a: (cuts.append(a), relabel(*a)))
        return sorted(paths(drafter.draft([context((1, 2, 0))], [exact(6, 30)])[0])), len(cuts)

    roomy, once = searched()
    monkeypatch.setattr("engine.drafters.specexec.CROWDED", 1)
    tight, often = searched()
    assert tight == roomy
    assert once == 1 < often


@given(seeds, st.integers(1, 6), st.floats(-6, 0))
def test_leaving_out_what_falls_short_never_widens_a_branch(seed, count, needed):
    logits = torch.stack([random_law(6, seed + row) for row in range(3)]).log()
    best = logits.topk(count)
    wanted = {
        (row, int(token))
        for row in range(3)
        for value, token in zip(best.values[row], best.indices[row], strict=True)
        if value >= needed
    }
    rows, tokens, law = _likeliest(logits, count, np.full(3, needed))
    found = zip(rows.tolist(), tokens.tolist(), law.tolist(), strict=True)
    assert {(row, token) for row, token, value in found if value >= needed} == wanted
    assert max(np.bincount(rows), default=0) <= count


def test_a_batch_shares_its_passes_and_changes_no_tree():
    ids = [(1, 2, 0), (0, 1, 2, 3), (4, 4, 1)]
    budgets = [exact(6, 20), exact(3, 9), exact(0, 9)]
    model = Counting(Markov(laws(4)))
    batch = [context(i, slot) for slot, i in enumerate(ids)]
    together = specexec(model).draft(batch, budgets)
    alone, longest = [], 0
    for i, budget in zip(ids, budgets, strict=True):
        single = Counting(Markov(laws(4)))
        alone.append(grown(single, budget, i))
        longest = max(longest, len(single.passes))
    assert together == alone
    assert len(model.passes) == longest


@pytest.mark.parametrize("floor", [0.02, 0.1, 0.9])
def test_the_floor_is_a_decayed_path_probability_and_an_exact_budget_ignores_it(floor):
    table = laws(6)
    model, budget = Markov(table), Budget(6, 64, floor=floor)
    found = paths(grown(model, replace(budget, nodes=600), wave=128))
    assert set(found) == {p for p in every_path(5, 6) if score(table, 0, p) >= floor}
    assert grown(model, replace(budget, exact=True)).drafted == 64


@pytest.mark.parametrize("seed", range(5))
def test_at_prices_the_tree_is_the_best_cut_of_the_whole_one(seed):
    """A dear first row and cheap ones after it: many nodes or none, never a few that lose."""
    whole = grown(Markov(laws(seed)), Budget(6, 40, floor=0.01), wave=128)
    chances = sorted((score(laws(seed), 0, p) for p in paths(whole)), reverse=True)
    sizes = []
    for first in (0.0, 0.5, 1.5, 50.0):
        prices = (0.0, *(first + 0.02 * n for n in range(40)))
        cut = grown(Markov(laws(seed)), Budget(6, 40, floor=0.01, prices=prices), wave=128)
        gains = [sum(chances[:n]) - prices[n] for n in range(len(chances) + 1)]
        sizes.append(cut.drafted)
        assert set(paths(cut)) <= set(paths(whole))
        assert gains[cut.drafted] == pytest.approx(max(gains))
    assert sizes[0] == sizes[1] > sizes[-1] == 0


def test_nothing_hangs_below_a_stop_token():
    tree = grown(Markov(laws(3)), exact(6, 60), stops={2})
    ends = [node for node in range(1, len(tree)) if tree.tokens[node] == 2]
    assert ends
    assert not any(tree.children[node] for node in ends)


def test_a_wave_that_does_not_earn_its_pass_is_not_run():
    """The same draft behind a slow target and behind one that costs next to nothing."""

    def passes(seconds):
        model = Counting(tiny_target())
        drafter = specexec(model, PassCost({1: seconds}))
        for _ in range(3):  # the first draft measures what a wave costs
            model.passes.clear()
            drafter.draft([context([1, 2, 3])], [Budget(20, 64)])
        return len(model.passes)

    assert passes(100.0) > passes(1e-7) == 1


def test_accepted_rows_stay_in_the_draft_cache():
    """Each node of the tree costs one row of the draft model; a round after it, only what is new does."""
    model = Counting(tiny_target())
    drafter, ids = specexec(model), [1, 2, 3]
    tree = drafter.draft([context(ids)], [exact(4, 12)])[0]
    assert model.passes[0] == [3]
    node = max(range(len(tree)), key=lambda n: (bool(tree.children[n]), tree.depth[n]))
    path = [node]
    while path[0]:
        path.insert(0, tree.parents[path[0]])
    ids += [*(tree.tokens[n] for n in path[1:]), 7]
    drafter.observe([Outcome(context(ids[:3]), tree, Verdict(tuple(path), 7), 0.0, 0.0)])
    assert model.length(0) == len(ids) - 1  # every accepted node had children: it was fed
    model.passes.clear()
    drafter.draft([context(ids)], [exact(4, 12)])
    assert model.passes[0] == [1]
    fresh = tiny_target()
    fresh.feed(0, ids[:-1])
    held, wanted = model.cache.rows(0, 0)[0], fresh.cache.rows(0, 0)[0]
    assert torch.allclose(held[:, : len(ids) - 1], wanted, atol=1e-4)


def test_draft_scores_come_from_the_path_and_not_from_siblings():
    """Every node's children are the draft's likeliest after that very path, over a real decoder."""
    model = tiny_target()
    tree = grown(model, exact(5, 40), (1, 2, 3), branch=2)
    found = dict(enumerate(paths(tree), 1))
    for node, children in enumerate(tree.children):
        ids = [1, 2, 3, *found.get(node, ())]
        likely = tiny_target().score([0], [chain(ids)])[0].logits[-1].topk(2).indices.tolist()
        assert {tree.tokens[child] for child in children} <= set(likely)


@pytest.mark.parametrize("room", [0, 1, 2, 5])
def test_the_drafts_own_context_bounds_the_depth(room):
    model = tiny_target(context=12)
    tree = grown(model, exact(9, 30), tuple(range(12 - room)))
    assert max(tree.depth) == room


@pytest.mark.parametrize(
    ("name", "value"),
    [("wave", 129), ("branch", 65), ("waves", 0), ("decay", 1.1), ("decay", math.nan)],
)
def test_options_out_of_range_are_refused(name, value):
    with pytest.raises(InvalidRequest, match=name):
        specexec(tiny_target(), **{name: value})


@pytest.mark.parametrize(("waves", "wave"), [(1, 8), (2, 8), (5, 3)])
def test_waves_bound_the_passes_the_depth_and_the_rows_of_a_pass(waves, wave):
    model = Counting(Markov(laws(2)))
    tree = grown(model, exact(30, 60), waves=waves, wave=wave)
    assert len(model.passes) == waves == max(tree.depth)
    assert all(sum(rows) <= wave for rows in model.passes[1:])
