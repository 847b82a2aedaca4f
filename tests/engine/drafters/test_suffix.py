"""Suffix decoding: what is drafted stood behind the same words, here or in a finished request."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.drafters.suffix import Suffix
from engine.engine import Engine
from engine.interfaces.drafter import Budget, Context, DrafterResources, Outcome
from engine.request import GenerationRequest, SamplingParams
from engine.speculation.rng import SeededRandom
from engine.speculation.tree import chain
from engine.speculation.verify import Verdict
from tests.engine.drafters.trees import paths
from tests.engine.tiny import drafter_of, engine_over, run_all, tiny_target

TOKENS = st.lists(st.integers(0, 3), min_size=1, max_size=30)
HISTORY = st.lists(TOKENS, max_size=4)
ALL = Budget(8, 24, exact=True)


class ChainsOnly:
    """A target that cannot score trees."""

    offers = frozenset()
    vocab = 13


def context(ids, request=1, stops=()):
    return Context(request, 0, ids, SamplingParams(), SeededRandom(0), frozenset(stops))


def suffix(finished=(), target=None, **options):
    """A drafter that has finished these requests, oldest first."""
    drafter = Suffix(DrafterResources(target or tiny_target(), options=options))
    for number, text in enumerate(finished, 100):
        drafter.draft([context(text, number)], [Budget(1, 1)])
        drafter.forget(number, 0)
    return drafter


def drafted(drafter, ids, budget=ALL, **about):
    return drafter.draft([context(ids, **about)], [budget])[0]


def continuations(ids, finished, depth):
    """What followed the last token anywhere: the own text goes on into itself, others end."""
    for end in range(1, len(ids)):
        if ids[end - 1] == ids[-1]:
            yield tuple((ids[end:] * depth)[:depth])
    for text in finished:
        for end in range(1, len(text)):
            if text[end - 1] == ids[-1]:
                yield tuple(text[end : end + depth])


@given(TOKENS, HISTORY)
def test_every_path_followed_the_same_token_before(ids, finished):
    known = list(continuations(ids, finished, 8))
    for path in paths(drafted(suffix(finished), ids)):
        assert any(text[: len(path)] == path for text in known)


@given(TOKENS, HISTORY, st.integers(0, 5), st.integers(0, 9), st.sampled_from([0.0, 0.05, 0.3]))
def test_no_budget_is_exceeded_and_siblings_differ(ids, finished, depth, nodes, floor):
    for exact in (True, False):
        tree = drafted(suffix(finished), ids, Budget(depth, nodes, exact=exact, floor=floor))
        assert tree.drafted <= nodes
        assert max(tree.depth) <= depth
        assert len(set(paths(tree))) == tree.drafted


@given(TOKENS, HISTORY)
def test_a_target_that_scores_only_chains_gets_the_likeliest_one(ids, finished):
    tree = drafted(suffix(finished, ChainsOnly()), ids, Budget(6, 999, exact=True))
    assert tree.is_chain
    whole = paths(drafted(suffix(finished), ids, Budget(6, 999, exact=True)))
    assert set(paths(tree)) <= set(whole)
    assert bool(tree.drafted) == bool(whole)


def test_the_longest_match_is_drafted_first_with_shorter_ones_as_siblings():
    ids = [5, 1, 2, 9, 0, 2, 8, 0, 1, 2]
    assert drafted(suffix(), ids, Budget(1, 1)).tokens == (2, 9)
    assert drafted(suffix(), ids, Budget(1, 4, exact=True)).tokens == (2, 9, 8)


def test_the_own_request_beats_a_finished_one_at_equal_length():
    finished = [[3, 1, 2, 8]] * 2 + [[6, 1, 2, 8]]
    assert drafted(suffix(finished), [4, 1, 2, 7, 1, 2], Budget(1, 1)).tokens == (2, 7)


def test_a_longer_match_in_a_finished_request_beats_the_own_one():
    finished = [[5, 1, 2, 8]]
    assert drafted(suffix(finished), [4, 2, 7, 5, 1, 2], Budget(1, 1)).tokens == (2, 8)


def test_a_stop_token_ends_a_path_and_is_not_part_of_it():
    tree = drafted(suffix(), [1, 2, 3, 4, 0, 1], Budget(9, 9, exact=True), stops={3})
    assert tree.tokens == (1, 2)


def test_finished_requests_that_were_wrong_cost_the_own_text_no_trust():
    drafter, own = suffix([[5, 1, 2, 8, 6, 7]]), [1, 2, 3, 4, 5, 6, 0, 1]
    misleading = [3, 5, 1, 2]  # stood in the finished request alone, where 8 followed
    assert (2, 3, 4, 5, 6, 0, 1, 2) in paths(drafted(drafter, own, Budget(9, 9)))
    assert drafted(drafter, misleading, Budget(9, 9), request=2).tokens == (2, 8, 6, 7)
    for _ in range(60):
        tree = drafted(drafter, misleading, Budget(9, 9), request=2)
        outcome = Outcome(context(misleading, 2), tree, Verdict((0,), 9), 0.0, 0.0)
        drafter.observe([outcome])
    assert drafted(drafter, misleading, Budget(9, 9), request=3).drafted == 0
    assert (2, 3, 4, 5, 6, 0, 1, 2) in paths(drafted(drafter, own, Budget(9, 9), request=4))


@pytest.mark.parametrize("nodes", [2, 20])
def test_a_plan_looks_beyond_its_nodes_and_drafts_no_more_than_those(nodes):
    text = list(range(10, 80))
    free = Budget(32, nodes, prices=(0.0,) * 33, pace=1.0)
    tree = drafted(suffix([text]), text[:24], free)
    assert 0 < tree.drafted <= nodes
    assert list(tree.tokens[1:]) == text[24 : 24 + tree.drafted]
    assert tree.later > 0  # the rest is copied in rounds to come


def test_a_round_without_a_budget_teaches_nothing():
    drafter, ids = suffix(), [1, 2, 1]
    drafted(drafter, ids)
    assert drafted(drafter, ids, Budget(0, 0)).drafted == 0
    drafter.observe([Outcome(context(ids), chain([1]), Verdict((0,), 9), 0.0, 0.0)])
    assert drafted(drafter, ids, Budget(1, 1, floor=0.59)).drafted == 1


def test_finished_texts_are_bounded_and_running_ones_are_dropped_with_their_request():
    drafter = suffix([[*range(10)], [*range(20, 30)]], history=15.0)
    assert drafted(drafter, [3]).drafted == 0
    assert drafted(drafter, [23]).drafted > 0
    assert len(drafter._finished) == 10
    drafter.forget(1, 0)
    drafter.forget(77, 0)  # never drafted for
    assert drafter._running == {}


def test_no_history_is_an_option():
    assert drafted(suffix([[1, 2, 3]], history=0.0), [1]).drafted == 0


def asked(prompt, drafter="suffix", **about):
    return GenerationRequest(prompt, 40, drafter=drafter, length="fixed", **about)


def passes(engine: Engine, request):
    [(ids, done)] = run_all(engine, [request])
    return ids, done.stats.passes


def test_a_second_conversation_is_drafted_from_the_first_ones_answer():
    engine = engine_over(tiny_target(2), slots=1)
    prompt = (3, 1, 4, 1, 5)
    first, alone = passes(engine, asked(prompt))
    again, helped = passes(engine, asked(prompt))
    assert again == first
    assert helped <= 40 / 17 + 1 < alone  # 16 drafted tokens and the target's own in each pass


def test_the_last_round_of_a_finished_answer_is_remembered_too():
    engine = engine_over(tiny_target(2), slots=1)
    ids, _ = passes(engine, asked((3, 1, 4, 1, 5)))
    assert [3, 1, 4, 1, 5, *ids] in drafter_of(engine, "suffix").finished_texts


def test_engines_do_not_share_texts():
    prompt = (3, 1, 4, 1, 5)
    _, alone = passes(engine_over(tiny_target(2)), asked(prompt))
    _, other = passes(engine_over(tiny_target(2)), asked(prompt))
    assert other == alone


@pytest.mark.parametrize("seed", [None, 4])
def test_requests_that_run_together_do_not_mix_their_texts(seed):
    prompts = [(1, 2, 3), (4, 5, 6, 7), (8, 9)]
    sampling = SamplingParams(0.0 if seed is None else 1.0, seed=seed)
    requests = [asked(prompt, sampling=sampling) for prompt in prompts]
    plain = [asked(prompt, "none", sampling=sampling) for prompt in prompts]
    wanted = [ids for ids, _ in run_all(engine_over(tiny_target(2)), plain)]
    engine = engine_over(tiny_target(2))
    assert [ids for ids, _ in run_all(engine, requests)] == wanted
    texts = [text for text in drafter_of(engine, "suffix").finished_texts if len(text) > 1]
    assert sorted(texts) == sorted([*p, *ids] for p, ids in zip(prompts, wanted, strict=True))
