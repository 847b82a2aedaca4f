"""Prompt lookup: drafts are as long as their match makes likely."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.drafters.lookup import Lookup
from engine.interfaces.drafter import Budget, Context, DrafterResources, Outcome
from engine.request import GenerationRequest, Prior, SamplingParams
from engine.speculation.rng import SeededRandom
from engine.speculation.verify import Verdict
from tests.engine.tiny import engine_over, run_all, tiny_target

LONG = Budget(32, 32)


def context(ids, request=1, stops=()):
    return Context(request, 0, ids, SamplingParams(), SeededRandom(0), frozenset(stops))


def lookup(**options):
    return Lookup(DrafterResources(tiny_target(), options=options))


def drafted(drafter, ids, budget=LONG, **about):
    tree = drafter.draft([context(ids, **about)], [budget])[0]
    assert tree.is_chain
    assert tree.tokens[0] == ids[-1]
    return list(tree.tokens[1:])


def tell(drafter, ids, *emitted):
    """One round: the draft, and that the target said something else or the same."""
    tree = drafter.draft([context(ids)], [LONG])[0]
    taken = 0
    while taken < len(emitted) - 1 and tree.tokens[taken + 1] == emitted[taken]:
        taken += 1
    verdict = Verdict(tuple(range(taken + 1)), emitted[taken])
    drafter.observe([Outcome(context(ids), tree, verdict, 0.0, 0.0)])


def test_a_longer_match_gives_a_longer_draft():
    once, text = [*range(100, 140)], [*range(50)]
    lengths = [len(drafted(lookup(), [*text, *once, *text[:n]])) for n in (1, 2, 4, 8)]
    assert lengths == [8, 14, 25, 32]


def test_all_of_an_exact_budget_is_spent():
    assert drafted(lookup(), [7, 1, 2, 3, 4, 5, 6, 7], Budget(5, 5, exact=True)) == [1, 2, 3, 4, 5]
    assert drafted(lookup(), [7, 1, 7], Budget(30, 30, exact=True)) == [1, 7] * 15


def test_the_floor_of_the_budget_shortens():
    text = [*range(30), 77, 0]
    assert drafted(lookup(), text, Budget(32, 32, floor=0.55)) == [1]
    assert drafted(lookup(), text, Budget(32, 32, floor=0.4)) == [1, 2]
    assert drafted(lookup(), text, Budget(32, 32, floor=0.7)) == []


@given(st.lists(st.integers(0, 3), min_size=1, max_size=40), st.integers(0, 9), st.integers(0, 9))
def test_no_budget_is_exceeded(text, depth, nodes):
    assert len(drafted(lookup(), text, Budget(depth, nodes, exact=True))) <= min(depth, nodes)


def test_a_new_engine_drafts_as_the_last_one_had_learnt_to():
    last, text = lookup(), [*range(30), 77, 0]
    for _ in range(60):
        tell(last, text, 99)
    shares, events = last.shares(1)
    prior = Prior("lookup", shares=shares, share_weight=events)
    remembering = replace(context(text), priors={"lookup": prior})
    [tree] = lookup().draft([remembering], [LONG])
    assert tree.drafted < len(drafted(lookup(), text))


def test_a_match_that_was_given_up_is_tried_again_once_it_would_have_been_right():
    """What was not proposed is judged as well; else a low confidence could never recover."""
    drafter, text = lookup(), [*range(30), 77, 0]
    for _ in range(400):
        tell(drafter, text, 99)
    strict = Budget(8, 8, floor=0.5)
    assert drafted(drafter, text, strict) == []
    for _ in range(400):
        tree = drafter.draft([context(text)], [strict])[0]
        drafter.observe([Outcome(context(text), tree, Verdict((0,), 1), 0.0, 0.0)])
    assert drafted(drafter, text, strict)[0] == 1


def test_a_stop_token_ends_the_draft_and_is_not_part_of_it():
    text = [1, 2, 3, 4, 5, 6, 1, 2]
    assert drafted(lookup(), text, Budget(4, 4, exact=True), stops={5}) == [3, 4]
    assert drafted(lookup(), text, Budget(4, 4, exact=True), stops={3}) == []


def test_matches_below_the_minimum_propose_nothing():
    text = [1, 2, 7, 1, 2]
    assert drafted(lookup(min_match=3.0), text) == []
    assert drafted(lookup(min_match=2.0), text)[0] == 7


def test_a_forgotten_request_leaves_no_text():
    drafter = lookup()
    drafted(drafter, [1, 2, 1, 2], request=5)
    drafter.forget(5, 0)
    assert drafter._texts == {}


def test_an_answer_reports_what_its_matches_were_worth():
    request = GenerationRequest((1, 2, 3, 1, 2), 40, drafter="lookup", length="fixed")
    [(_, done)] = run_all(engine_over(tiny_target(3, layers=1)), [request])
    [run] = done.stats.runs
    assert sum(run.shares) == pytest.approx(1)
    assert run.share_weight >= 1


def test_one_loop_of_the_engine_ends_in_few_passes():
    """A target that repeats itself: nearly every pass accepts a whole draft."""
    target = tiny_target(3, layers=1)
    request = GenerationRequest((1, 2, 3), 80, drafter="lookup", length="fixed")
    [(ids, done)] = run_all(engine_over(target), [request])
    loops = next((p for p in range(1, 20) if ids[-p:] * 2 == ids[-2 * p :]), None)
    assert loops is not None, "choose a seed whose answer loops"
    assert done.stats.passes < 40
