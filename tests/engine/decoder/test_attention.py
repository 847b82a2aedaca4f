"""Attention of new rows and rotary embeddings: what their definitions say."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.decoder.attention import attend, plan_reading
from engine.decoder.decoder import Rotary
from engine.decoder.kv_cache import CacheShape, KVCache

NEAR = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 0.03, torch.float16: 4e-3}
CPU = torch.device("cpu")


def cached(prefix, parents, shared, dtype, generator):
    """A slot's cache with this prefix and these rows after it, and where these are."""
    cache = KVCache(CacheShape(1, shared, 8, 4096, dtype, CPU))
    for rows in (list(range(-1, prefix - 1)), parents):
        layout = cache.place(0, rows)
        kv = torch.randn(2, len(rows), shared, 8, generator=generator).to(dtype)
        keys, values = cache.write(0, 0, layout, (kv[0], kv[1]))
        if rows is not parents:
            cache.keep(0, range(prefix))
    return keys, values, layout


def defined(q, keys, values, layout):
    """Softmax of scaled products over what each row sees, head by head, in float64."""
    group, found = q.shape[1] // keys.shape[0], torch.zeros(q.shape, dtype=torch.float64)
    for row, bits in enumerate(layout.seen):
        after = [layout.length + i for i in range(bits.bit_length()) if bits >> i & 1]
        seen = [*range(layout.length), *after]
        for head in range(q.shape[1]):
            k, v = (store[head // group][seen].double() for store in (keys, values))
            found[row, head] = torch.softmax(k @ q[row, head].double() / q.shape[-1] ** 0.5, 0) @ v
    return found


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(list(NEAR)),
    st.sampled_from([(4, 4), (4, 2), (6, 2), (7, 1)]),
    st.sampled_from([1, 31, 62, 64, 127, 700]),
    st.lists(st.integers(0, 99), max_size=12),
)
def test_rows_mix_what_the_definition_says(dtype, heads, prefix, picks):
    """Of any tree after any prefix; the cache is as it was afterwards."""
    generator = torch.Generator().manual_seed(len(picks))
    parents = [-1, *(pick % (at + 1) for at, pick in enumerate(picks))]
    keys, values, layout = cached(prefix, parents, heads[1], dtype, generator)
    before = keys.clone(), values.clone()
    fused = torch.randn(len(parents), sum(heads), 8, generator=generator).to(dtype)
    q = fused[:, : heads[0]]  # not contiguous, as in a target
    reading = plan_reading(layout, heads[0] // heads[1], dtype, CPU)
    found = attend(q, keys, values, reading)
    assert found.dtype == dtype
    assert (found.double() - defined(q, keys, values, layout)).abs().max() < NEAR[dtype]
    assert torch.equal(keys, before[0])
    assert torch.equal(values, before[1])


# Rotary embeddings.

FREQUENCIES = torch.tensor([1.0, 0.1])  # of two pairs: four rotated widths


def rotated(x, position):
    """Each pair (i, i + 2) as a complex number, turned by its angle."""
    pairs = torch.complex(x[..., :2].double(), x[..., 2:4].double())
    turned = pairs * torch.exp(1j * position * FREQUENCIES.double())
    return torch.cat((turned.real, turned.imag, x[..., 4:].double()), -1)


@pytest.mark.parametrize("width", [4, 7])
@pytest.mark.parametrize("positions", [[5], [3, 4, 5], [3, 4, 4, 5, 4], [0, 9]])
def test_every_row_is_turned_by_its_own_position(positions, width):
    x = torch.randn(len(positions), 3, width, generator=torch.Generator().manual_seed(0))
    found = Rotary.table(FREQUENCIES, 16).rows(positions).turn(x)
    for row, position in enumerate(positions):
        torch.testing.assert_close(
            found[row].double(), rotated(x[row], position), atol=1e-6, rtol=0
        )


def test_a_dot_product_depends_on_the_distance_alone():
    table = Rotary.table(FREQUENCIES, 64)
    q, k = torch.randn(2, 1, 1, 4, generator=torch.Generator().manual_seed(1))
    found = [
        float((table.rows([at + 3]).turn(q) * table.rows([at]).turn(k)).sum()) for at in range(40)
    ]
    assert all(math.isclose(each, found[0], abs_tol=1e-5) for each in found)
