"""KVCache: rows are where the layout says, growth keeps what was there, compaction is exact."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from engine.decoder.kv_cache import CacheShape, KVCache

SHAPE = CacheShape(2, 1, 2, 4096, torch.float32, torch.device("cpu"))


def stamped(cache, slot, layout, stamps):
    """Write rows whose values are their stamps."""
    rows = torch.tensor(stamps, dtype=torch.float32).view(-1, 1, 1).expand(-1, 1, 2)
    for layer in range(2):
        cache.write(slot, layer, layout, (rows, rows + 0.5))


def kept(cache, slot, stamps):
    """Write a chain of rows, and keep all of them."""
    stamped(cache, slot, cache.place(slot, range(-1, len(stamps) - 1)), stamps)
    cache.keep(slot, range(len(stamps)))


def held(cache, slot):
    keys, values = cache.rows(slot, 1)
    assert torch.equal(values, keys + 0.5)
    return [int(row) for row in keys[0, :, 0]]


@given(st.lists(st.sampled_from([(0,), (0, 1), (0, 2), (0, 2, 4), (0, 1, 3)]), max_size=12))
def test_kept_rows_are_the_accepted_ones_in_order(paths):
    cache, wanted, stamp = KVCache(SHAPE), [], 0
    for path in paths:
        layout = cache.place(0, [-1, 0, 0, 1, 2])
        stamps = range(stamp, stamp + 5)
        stamped(cache, 0, layout, stamps)
        cache.keep(0, path)
        wanted += [stamps[node] for node in path]
        stamp += 5
    assert cache.length(0) == len(wanted)
    if wanted:
        assert held(cache, 0) == wanted


def test_growing_beyond_the_first_rows_keeps_everything():
    cache = KVCache(SHAPE)
    for start in range(0, 1500, 100):
        kept(cache, 0, range(start, start + 100))
    assert held(cache, 0) == list(range(1500))


def test_positions_follow_depth_and_rows_follow_order():
    cache = KVCache(SHAPE)
    kept(cache, 0, [7, 8, 9])
    layout = cache.place(0, [-1, 0, 0, 2])
    assert layout.positions == (3, 4, 4, 5)
    assert (layout.start, layout.end) == (3, 7)
    assert layout.length == 3
    assert layout.seen == (0b0001, 0b0011, 0b0101, 0b1101)


def test_crop_forgets_pending_rows_and_never_lengthens():
    cache = KVCache(SHAPE)
    kept(cache, 0, [1, 2])
    cache.place(0, [-1, 0])
    cache.crop(0, 9)
    assert (cache.length(0), cache.pending(0)) == (2, 0)
    cache.crop(0, 1)
    assert held(cache, 0) == [1]


def test_copied_rows_are_the_slots_own():
    cache = KVCache(SHAPE)
    kept(cache, 0, range(600))
    kept(cache, 1, range(3))
    cache.place(1, [-1])
    cache.take(cache, 0, 1, 550)  # more than its first rows hold
    assert (cache.length(1), cache.pending(1)) == (550, 0)
    kept(cache, 0, [7000])
    kept(cache, 1, [8000])
    assert held(cache, 0) == [*range(600), 7000]
    assert held(cache, 1) == [*range(550), 8000]
