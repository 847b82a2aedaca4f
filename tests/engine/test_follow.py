"""Follower: the draft model's cache equals the committed tokens, whatever happened before."""

import torch

from engine.decode.tree import DraftTree, chain
from engine.decode.verify import Verdict
from engine.follow import Follower, Growth
from engine.protocols.drafting import Context, Outcome
from engine.request import SamplingParams
from tests.engine.tiny import tiny_target


def context(ids):
    return Context(1, 0, ids, SamplingParams(), None)


def fresh_logits(ids):
    return tiny_target().score([0], [chain(ids)])[0].logits[-1]


def near(found, wanted):
    return (found - wanted).abs().max() < 1e-4


def start(follower, ids):
    return follower.start([context(ids)])[0].logits[-1]


def settle(follower, ids, tree, path):
    follower.settle(Outcome(context(ids), tree, Verdict(path, 0), 0.0, 0.0))


def test_start_catches_up_from_nothing_and_after_a_jump():
    follower = Follower(tiny_target())
    assert near(start(follower, [1, 2, 3]), fresh_logits([1, 2, 3]))
    assert near(start(follower, [1, 2, 9, 4]), fresh_logits([1, 2, 9, 4]))


def test_a_long_prompt_is_caught_up_in_chunks():
    ids = [i % 13 for i in range(600)]
    follower = Follower(tiny_target(context=1000))
    wanted = tiny_target(context=1000).score([0], [chain(ids)])[0].logits[-1]
    assert near(start(follower, ids), wanted)


def test_accepted_rows_stay_and_rejected_rows_go():
    model = tiny_target()
    follower = Follower(model)
    ids = [1, 2, 3]
    start(follower, ids)
    tokens, parents = [3, 4, 5, 6], [-1, 0, 0, 1]
    follower.grow([Growth(0, [1, 2], tokens, parents)])
    settle(follower, ids, DraftTree(tuple(tokens), tuple(parents)), (0, 2))
    assert model.length(0) == 4
    ids += [5, 7]
    assert near(start(follower, ids), fresh_logits(ids))


def test_a_fully_accepted_chain_feeds_its_last_token_next_round():
    """The newest leaf was never fed to the draft; forgetting it only lowers acceptance, silently."""
    model = tiny_target()
    follower = Follower(model)
    ids = [1, 2, 3]
    start(follower, ids)
    tokens, parents = [3, 4, 5], [-1, 0, 1]
    follower.grow([Growth(0, [1], tokens, parents)])
    settle(follower, ids, DraftTree(tuple(tokens), tuple(parents)), (0, 1, 2))
    assert model.length(0) == 4
    ids += [4, 5, 6]
    assert near(start(follower, ids), fresh_logits(ids))


def test_renumbered_nodes_keep_their_rows():
    model = tiny_target()
    follower = Follower(model)
    ids = [1, 2, 3]
    start(follower, ids)
    tokens, parents = [3, 4, 5, 6], [-1, 0, 0, 2]
    logits = follower.grow([Growth(0, [1, 2], tokens, parents)])[0].logits
    assert near(logits[1], fresh_logits([*ids, 5]))
    follower.relabel(0, {0: 0, 2: 1, 3: 2})
    settle(follower, ids, DraftTree((3, 5, 6), (-1, 0, 1)), (0, 1, 2))
    keys = model.cache.rows(0, 0)[0]
    wanted = tiny_target()
    wanted.feed(0, [1, 2, 3, 5])
    assert torch.allclose(keys, wanted.cache.rows(0, 0)[0], atol=1e-4)


def test_what_reading_takes_is_measured_and_what_is_known_costs_nothing():
    follower = Follower(tiny_target(context=1000))
    ids = [i % 13 for i in range(600)]
    assert follower.reading(context(ids)) == 0.0  # nothing was measured
    start(follower, ids[:300])
    settle(follower, ids[:300], chain([ids[299]]), (0,))
    whole, half = follower.reading(context([14, *ids])), follower.reading(context(ids))
    assert 0.4 < half / whole < 0.6
    assert follower.reading(context(ids[:300])) < whole / 100
    start(follower, ids[:310])
    settle(follower, ids[:310], chain([ids[309]]), (0,))
    assert follower.reading(context([14, *ids])) == whole  # ten tokens tell nothing


def test_what_reading_takes_may_be_known_before_the_first_text():
    ids = [i % 13 for i in range(600)]
    follower = Follower(tiny_target(context=1000), read=2.0)
    assert follower.reading(context(ids)) == 1200.0
    start(follower, ids)
    assert follower.reading(context([14, *ids])) < 120.0  # what was measured soon overrules it
