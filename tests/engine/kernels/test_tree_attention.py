"""Tree attention: what torch's attention gives with the tree's mask written out."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from numpy.typing import NDArray

from engine.speculation.tree import ancestor_bits, bit_rows

WORDS = 4


def packed_bits(seen: NDArray[np.bool_], words: int) -> NDArray[np.int32]:
    """Bool [n, m] to the bits of ``tree_attention``, [n, words]."""
    padded = np.zeros((len(seen), 32 * words), dtype=bool)
    padded[:, : seen.shape[1]] = seen
    return np.packbits(padded, axis=1, bitorder="little").view(np.int32)


def tensors(device, rows, shape, room, dtype=torch.float32):
    heads, kv_heads, width = shape
    random = torch.Generator().manual_seed(rows + 100 * heads)

    def normal(*shape):
        return torch.randn(*shape, generator=random).to(device, dtype)

    return normal(rows, heads, width), normal(kv_heads, room, width), normal(kv_heads, room, width)


def parents_of(rows, seed):
    random = torch.Generator().manual_seed(seed)
    return [-1, *(int(torch.randint(n, (1,), generator=random)) for n in range(1, rows))]


def reference(q, keys, values, seen, length):
    """F.scaled_dot_product_attention over the rows that exist, with an additive mask."""
    end = length + seen.shape[1]
    mask = torch.zeros(len(seen), end, dtype=q.dtype, device=q.device)
    mask[:, length:].masked_fill_(torch.from_numpy(~seen).to(q.device), -torch.inf)
    found = F.scaled_dot_product_attention(
        q.transpose(0, 1)[None], keys[None, :, :end], values[None, :, :end], mask, enable_gqa=True
    )
    return found[0].transpose(0, 1)


def attended(device, given, seen, length):
    """Attention by the kernel, with the rows ``seen`` [n, m] after ``length`` cached ones."""
    from engine.kernels.tree_attention import tree_attention

    bits = torch.from_numpy(packed_bits(seen, WORDS)).to(device)
    extent = torch.tensor([length, length + seen.shape[1]], dtype=torch.int32, device=device)
    return tree_attention(*given, bits, extent)


def near(found, expected):
    torch.testing.assert_close(found, expected, atol=2e-6, rtol=2e-5)


@pytest.mark.parametrize(
    ("rows", "length", "shape"),
    [
        (1, 0, (4, 2, 16)),
        (1, 150, (8, 1, 16)),
        (5, 0, (8, 1, 16)),
        (5, 7, (3, 3, 32)),
        (5, 150, (4, 2, 16)),
        (33, 7, (2, 1, 16)),  # more rows than one program takes
    ],
)
def test_it_is_attention_with_the_trees_mask(device, rows, length, shape):
    given = tensors(device, rows, shape, length + rows + 9)
    seen = bit_rows(ancestor_bits(parents_of(rows, length)), rows)
    near(attended(device, given, seen, length), reference(*given, seen, length))


def test_queries_may_lie_among_others(device):
    """As the decoder gives them: queries and keys of a row are turned together."""
    q, *cached = tensors(device, 5, (6, 2, 16), 30)
    given = (q[:, :4], *cached)
    seen = bit_rows(ancestor_bits(parents_of(5, 2)), 5)
    near(attended(device, given, seen, 9), reference(*given, seen, 9))


def test_rows_after_other_rows_of_the_tree(device):
    given = tensors(device, 3, (4, 2, 16), 64)
    early = ancestor_bits([-1, 0, 0, 1])
    seen = bit_rows(ancestor_bits([1, 3, 4], early), 7)
    near(attended(device, given, seen, 20), reference(*given, seen, 20))


def test_half_precision_stays_near(device):
    half = torch.bfloat16 if device.type == "cuda" else torch.float16  # NumPy has no bfloat16
    given = tensors(device, 6, (4, 2, 16), 90, half)
    seen = bit_rows(ancestor_bits(parents_of(6, 1)), 6)
    exact = reference(*(tensor.float() for tensor in given), seen, 80)
    found = attended(device, given, seen, 80).float()
    torch.testing.assert_close(found, exact, atol=2e-2, rtol=2e-2)


def test_rows_that_do_not_exist_and_rows_that_see_nothing_do_no_harm(device):
    given = _, keys, values = tensors(device, 2, (4, 2, 16), 64)
    keys[:, 12:], values[:, 12:] = float("nan"), float("nan")
    seen = bit_rows(ancestor_bits([-1, 0]), 2)
    near(attended(device, given, seen, 10), reference(*given, seen, 10))
    assert bool(torch.isfinite(attended(device, given, seen & False, 0)).all())
