"""A pass over a transformers model: an aborted one leaves no trace, and only wanted logits are computed."""

from unittest.mock import patch

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from engine.interfaces.target import Rows
from engine.models.hf.cache import RowCache
from engine.speculation.tree import chain, single
from tests.engine.models.checkpoints import CHAINS, IDS, RECURRENT, STUCK, TREES, near, oracle


@given(
    st.lists(
        st.tuples(st.sampled_from(["add", "add", "cut", "keep"]), st.integers(0, 9)), max_size=12
    )
)
def test_rows_are_those_that_were_added_and_kept(steps):
    """By turns on a cache with little room and on a list; a copy of its beginning is its own."""
    with patch("engine.models.hf.cache.STEP", 4):
        cache, held, count = RowCache(), [], 0
        for what, number in [("add", 3), *steps]:
            if what == "add":
                fresh = range(count, count + number % 7 + 1)
                count += len(fresh)
                cache.update(rows_of(fresh), -rows_of(fresh), 0)
                held += fresh
            elif what == "cut":
                cache.cut(number)
                del held[number:]
            else:
                length, path = len(held) // 2, range(len(held) // 2)[::2]
                cache.keep(length, path)
                held = held[:length] + [held[length + node] for node in path]
            layer = cache.layers[0]
            assert torch.equal(layer.keys, rows_of(held))
            assert torch.equal(layer.values, -rows_of(held))
            assert cache.get_seq_length() == len(held)
        copy = RowCache()
        copy.begin_as(cache, len(held) // 2)
        cache.cut(0)
        cache.update(rows_of([-1] * 9), rows_of([-1] * 9), 0)
        if held[: len(held) // 2]:
            assert torch.equal(copy.layers[0].keys, rows_of(held[: len(held) // 2]))


def rows_of(numbers):
    """Keys [1, 2, n, 3] that tell which row they are."""
    return torch.tensor(list(numbers), dtype=torch.float32)[None, None, :, None].expand(1, 2, -1, 3)


@pytest.mark.parametrize("family", [*TREES, *CHAINS, *RECURRENT])
def test_a_chunk_that_is_left_in_any_layer_leaves_no_trace(loaded, family):
    """After a prefix and without one; what comes next equals the library's own pass."""
    target, reference = loaded(family)
    for before in (0, 10):
        for layers in range(target.layers):
            target.crop(0, 0)
            if before:
                target.feed(0, IDS[:before])
            asked = []
            target.abort_when(
                lambda asked=asked, layers=layers: asked.append(1) or len(asked) > layers
            )
            target.feed(0, IDS[20:30])
            target.abort_when(bool)
            assert len(asked) == layers + 1  # of a model that asked less nothing would be shown
            assert (target.length(0), target.pending(0)) == (before, 0)
            target.feed(0, IDS[before:14])
            again = target.score([0], [chain([8, 9])])[0].logits
            assert near(again, oracle(reference, [*IDS[:14], 8, 9])[-2:])


@pytest.mark.parametrize("family", STUCK)
def test_a_state_that_is_lost_is_never_left_in_the_middle(loaded, family):
    assert not loaded(family)[0].abort_when(bool)


@pytest.mark.parametrize("family", ["gemma3", "granite", "bloom", "falcon_h1"])
def test_logits_are_computed_of_the_rows_that_are_asked_for_alone(loaded, family):
    target, _ = loaded(family)
    rows = []
    head = target.model.module.get_output_embeddings()
    handle = head.register_forward_hook(lambda _, given, __: rows.append(given[0].shape[-2]))
    target.feed(0, IDS[:13])
    target.score([0], [single(IDS[13])])
    target.crop(0, target.length(0))
    target.grow([Rows(0, IDS[20:24], (-1, 0, 1, 2), last=2)])
    assert rows == [1, 1, 2]
    handle.remove()
