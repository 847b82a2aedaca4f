"""Follower: the draft model's cache equals the committed tokens, whatever happened before."""

from functools import cache

import pytest
import torch

from engine.drafting.draft_cache import DraftCache, NewNodes
from engine.errors import OutOfMemory
from engine.interfaces.drafter import Context, Outcome
from engine.interfaces.target import SHARED
from engine.request import SamplingParams
from engine.speculation.tree import DraftTree, chain
from engine.speculation.verify import Verdict
from tests.engine.tiny import tiny_target


def context(ids, slot=0):
    return Context(1 + slot, slot, ids, SamplingParams(), None)


def fresh_logits(ids):
    return tiny_target().score([0], [chain(ids)])[0].logits[-1]


def near(found, wanted):
    return (found - wanted).abs().max() < 1e-4


def start(follower, ids):
    return follower.start([context(ids)])[0].logits[-1]


def settle(follower, ids, tree, path):
    follower.settle(Outcome(context(ids), tree, Verdict(path, 0), 0.0, 0.0))


def test_start_catches_up_from_nothing_and_after_a_jump():
    follower = DraftCache(tiny_target())
    assert near(start(follower, [1, 2, 3]), fresh_logits([1, 2, 3]))
    assert near(start(follower, [1, 2, 9, 4]), fresh_logits([1, 2, 9, 4]))


@pytest.mark.parametrize(("parents", "fed", "path", "length", "following"), [
    ((-1, 0, 0, 1), [1, 2], (0, 2), 4, [5, 7]),  # rejected rows go
    ((-1, 0, 1), [1], (0, 1, 2), 4, [4, 5, 6]),  # the last token was not fed: it is fed next round
])  # fmt: skip
def test_accepted_rows_stay(parents, fed, path, length, following):
    model, ids = tiny_target(), [1, 2, 3]
    follower = DraftCache(model)
    start(follower, ids)
    tokens = [3, 4, 5, 6][: len(parents)]
    follower.grow([NewNodes(0, fed, tokens, list(parents))])
    settle(follower, ids, DraftTree(tuple(tokens), parents), path)
    assert model.length(0) == length
    ids += following
    assert near(start(follower, ids), fresh_logits(ids))


def test_renumbered_nodes_keep_their_rows():
    model = tiny_target()
    follower = DraftCache(model)
    ids = [1, 2, 3]
    start(follower, ids)
    tokens, parents = [3, 4, 5, 6], [-1, 0, 0, 2]
    logits = follower.grow([NewNodes(0, [1, 2], tokens, parents)])[0].logits
    assert near(logits[1], fresh_logits([*ids, 5]))
    follower.relabel(0, {0: 0, 2: 1, 3: 2})
    settle(follower, ids, DraftTree((3, 5, 6), (-1, 0, 1)), (0, 1, 2))
    keys = model.cache.rows(0, 0)[0]
    wanted = tiny_target()
    wanted.feed(0, [1, 2, 3, 5])
    assert torch.allclose(keys, wanted.cache.rows(0, 0)[0], atol=1e-4)


def test_what_reading_takes_is_measured_and_what_is_known_costs_nothing():
    follower = DraftCache(tiny_target(context=1000))
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
    follower = DraftCache(tiny_target(context=1000), read=2.0)
    assert follower.reading(context(ids)) == 1200.0
    start(follower, ids)
    assert follower.reading(context([14, *ids])) < 120.0  # what was measured soon overrules it


LONG = [(5 * i + i * i // 7) % 13 for i in range(600)]
ROOM = 1000


def counted(model):
    """Tokens that are read from now on, by slot: fed or grown."""
    read, feed, grow = [], model.feed, model.grow
    model.feed = lambda slot, tokens: read.append((slot, len(tokens))) or feed(slot, tokens)
    model.grow = lambda rows: read.extend((r.slot, len(r.tokens)) for r in rows) or grow(rows)
    return read


@cache
def logits_of(ids):
    return tiny_target(context=ROOM).score([0], [chain(list(ids))])[0].logits[-1]


@pytest.mark.parametrize("common", [40, 255, 256, 257, 512, 598])
def test_requests_that_begin_alike_read_that_once(common):
    model = tiny_target(context=ROOM)
    read = counted(model)
    texts = [[*LONG[:common], 1 + n, *LONG[: 599 - common]] for n in range(3)]
    batch = [context(ids, slot) for slot, ids in enumerate(texts)]
    for found, ids in zip(DraftCache(model).start(batch), texts, strict=True):
        assert near(found.logits[-1], logits_of(tuple(ids)))
    assert sum(many for _, many in read) == common + 3 * (600 - common)
    assert all(many <= 256 for _, many in read)


def test_what_another_slot_holds_is_taken_over_and_costs_nothing():
    model = tiny_target(context=ROOM)
    follower = DraftCache(model)
    start(follower, LONG)
    settle(follower, LONG, chain([LONG[-1]]), (0,))
    read = counted(model)
    second = [*LONG[:500], 3, 1, 4]
    whole = follower.reading(context([14, *second]))
    assert follower.reading(context(second, 1)) < whole / 100
    [found] = follower.start([context(second, 1)])
    assert read == [(1, 3)]
    assert near(found.logits[-1], logits_of(tuple(second)))


def test_little_is_read_rather_than_copied():
    model = tiny_target(context=ROOM)
    read = counted(model)
    batch = [context(LONG[:SHARED], slot) for slot in range(2)]
    DraftCache(model).start(batch)
    assert read == [(0, SHARED), (1, SHARED)]


def full(source, slot, length):
    raise OutOfMemory(2**20, 0, 2**30)


class Alone:
    """A draft model whose slots share nothing."""

    can_share = False

    def __init__(self, model):
        self.context, self.tokens, self.crop = model.context, model.tokens, model.crop
        self.feed, self.grow = model.feed, model.grow


@pytest.mark.parametrize("sharing", [True, False])
def test_without_memory_or_means_for_a_copy_every_slot_reads(sharing):
    model = tiny_target(context=ROOM)
    model.share = full
    read = counted(model)
    found = DraftCache(model if sharing else Alone(model)).start([context(LONG, s) for s in (0, 1)])
    assert sum(many for _, many in read) == 2 * len(LONG)
    assert all(near(each.logits[-1], logits_of(tuple(LONG))) for each in found)
