"""Token recycling: the table of successors, and the trees that are best under it."""

import heapq
from itertools import product
from math import prod

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from engine.drafters.recycling import WIDTH, Recycling
from engine.interfaces.drafter import Budget, Context, DrafterResources, Outcome
from engine.interfaces.target import Scores
from engine.request import GenerationRequest, SamplingParams
from engine.speculation.rng import SeededRandom
from engine.speculation.tree import DraftTree, chain
from engine.speculation.verify import Verdict
from tests.engine.drafters.trees import paths
from tests.engine.tiny import engine_over, run_all, tiny_target

V = 13


def context(ids, request=1, stops=()):
    return Context(request, 0, ids, SamplingParams(), SeededRandom(0), frozenset(stops))


def recycling():
    return Recycling(DrafterResources(tiny_target()))


def logits_for(*rows):
    """[N, V]: each row names its likeliest tokens, likeliest first."""
    found = torch.full((len(rows), V), -9.0)
    for row, tokens in enumerate(rows):
        for place, token in enumerate(tokens):
            found[row, token] = 5.0 - place
    return found


def tell(drafter, tree, path, logits):
    verdict = Verdict(tuple(path), 0)
    drafter.observe([Outcome(context([1]), tree, verdict, 0.0, 0.0, Scores(logits))])


def drafted(drafter, ids, budget, **about):
    return drafter.draft([context(ids, **about)], [budget])[0]


def taught(seed=0):
    """A drafter whose whole table came from random logits."""
    drafter = recycling()
    generator = torch.Generator().manual_seed(seed)
    everything = chain(range(V))
    tell(drafter, everything, range(V), 3 * torch.randn(V, V, generator=generator))
    return drafter


def best_paths(drafter, root, depth, nodes):
    """The likeliest paths of ranks by brute force, as (probability, tokens)."""
    found = []
    for length in range(1, depth + 1):
        for ranks in product(range(WIDTH), repeat=length):
            token, tokens, chances = root, [], []
            for rank in ranks:
                chances.append(float(drafter._chances[token, rank]))
                token = int(drafter._tokens[token, rank])
                tokens.append(token)
            found.append((prod(chances), tuple(tokens)))
    return heapq.nlargest(nodes, found)


@pytest.mark.parametrize(("depth", "nodes"), [(1, 3), (2, 20), (3, 12), (4, 40)])
def test_the_tree_has_the_likeliest_paths(depth, nodes):
    for root in range(4):
        drafter = taught(root)
        tree = drafted(drafter, [root], Budget(depth, nodes, exact=True))
        assert set(paths(tree)) == {path for _, path in best_paths(drafter, root, depth, nodes)}


@given(st.integers(0, 99), st.integers(0, 6), st.integers(0, 70), st.sampled_from([0.0, 0.02, 0.3]))
def test_no_budget_is_exceeded_and_siblings_differ(seed, depth, nodes, floor):
    tree = drafted(taught(seed), [seed % V], Budget(depth, nodes, floor=floor))
    assert tree.drafted <= nodes
    assert max(tree.depth) <= depth
    assert len(set(paths(tree))) == tree.drafted
    assert tree.q is None


@given(st.integers(0, 99), st.floats(0.01, 0.5))
def test_nodes_below_the_floor_are_not_proposed(seed, floor):
    drafter = taught(seed)
    tree = drafted(drafter, [1], Budget(3, 999, floor=floor))
    wanted = {path for chance, path in best_paths(drafter, 1, 3, 999) if chance >= floor}
    assert set(paths(tree)) == wanted


def test_a_token_that_was_never_seen_proposes_nothing():
    assert drafted(recycling(), [5], Budget(6, 32)).drafted == 0


def test_hypothetical_rows_teach_and_accepted_ones_overrule_them():
    """Token 4 stands twice in the tree; only node 1 is on the accepted path."""
    drafter = recycling()
    tree = DraftTree((1, 4, 6, 4), (-1, 0, 0, 2))
    tell(drafter, tree, [0, 1], logits_for([4], [7], [8], [9]))
    assert drafter._tokens[4, 0] == 7
    assert drafter._tokens[6, 0] == 8


def test_the_newest_prediction_replaces_the_older_one():
    drafter = recycling()
    tell(drafter, chain([1]), [0], logits_for([4, 5]))
    tell(drafter, chain([1]), [0], logits_for([6]))
    assert drafter._tokens[1, 0] == 6


def test_the_prompt_starts_the_table_with_its_own_bigrams():
    drafter = recycling()
    tree = drafted(drafter, [1, 2, 3, 1, 4, 1], Budget(3, 32, exact=True))
    assert tree.tokens[:3] == (1, 4, 1)
    assert [tree.tokens[n] for n in tree.children[0]] == [4, 2]
    assert (4, 1) in paths(tree)
    assert (2, 3, 1) in paths(tree)


def test_the_prompt_goes_before_what_was_learned_but_does_not_erase_it():
    drafter = recycling()
    tell(drafter, chain([1]), [0], logits_for([5, 6]))
    drafted(drafter, [1, 9, 2, 1], Budget(1, 1))
    assert drafter._tokens[1, :3].tolist() == [9, 5, 6]
    assert drafter._chances[1].sum() == pytest.approx(1.0, abs=0.01)


def test_a_prompt_is_read_once():
    drafter = recycling()
    drafted(drafter, [1, 2, 1], Budget(1, 1))
    tell(drafter, chain([1]), [0], logits_for([7]))
    assert drafted(drafter, [1, 2, 1, 2, 1], Budget(1, 1)).tokens == (1, 7)


def test_a_stop_token_is_not_drafted():
    drafter = taught()
    tree = drafted(drafter, [3], Budget(4, 60, exact=True), stops={int(drafter._tokens[3, 0])})
    assert int(drafter._tokens[3, 0]) not in tree.tokens[1:]


def test_an_outcome_without_scores_teaches_nothing():
    drafter = recycling()
    drafter.observe([Outcome(context([1]), chain([1]), Verdict((0,), 2), 0.0, 0.0)])
    assert drafter._chances.sum() == 0


def test_requests_of_one_step_teach_together():
    drafter = recycling()
    outcomes = [
        Outcome(context([t]), chain([t]), Verdict((0,), 0), 0.0, 0.0, Scores(logits_for([t + 1])))
        for t in (1, 5)
    ]
    drafter.observe(outcomes)
    assert drafter._tokens[[1, 5], 0].tolist() == [2, 6]


def test_only_the_table_outlives_a_request():
    drafter = taught()
    drafted(drafter, [3], Budget(1, 1))
    drafter.forget(1, 0)
    assert drafter._started == set()
    drafter.forget(1, 0)


def test_a_second_request_profits_from_the_first():
    engine = engine_over(tiny_target(2), slots=1)
    request = GenerationRequest((3, 1, 4, 1, 5), 40, drafter="recycling", length="fixed")
    [(ids, cold)] = run_all(engine, [request])
    [(again, warm)] = run_all(engine, [request])
    assert again == ids
    assert warm.stats.passes < cold.stats.passes


def test_a_vocabulary_smaller_than_the_table_is_wide():
    engine = engine_over(tiny_target(vocab=5))
    request = GenerationRequest((1, 2, 3, 4), 20, drafter="recycling", length="fixed")
    plain = GenerationRequest((1, 2, 3, 4), 20, drafter="none")
    assert run_all(engine, [request])[0][0] == run_all(engine, [plain])[0][0]
