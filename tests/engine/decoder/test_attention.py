"""Attention of new rows and rotary embeddings: what their definitions say."""

import pytest
import torch

from engine.decoder import attention
from engine.decoder.attention import FEW, attend
from engine.decoder.decoder import Rotary

NEAR = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 0.03, torch.float16: 4e-3}


def defined(q, keys, values, mask):
    """Softmax of scaled products, head by head, in float64."""
    group = q.shape[1] // keys.shape[0]
    mixed = []
    for head in range(q.shape[1]):
        k, v = keys[head // group].double(), values[head // group].double()
        scores = q[:, head].double() @ k.T / q.shape[-1] ** 0.5
        mixed.append(torch.softmax(scores if mask is None else scores + mask.double(), -1) @ v)
    return torch.stack(mixed, 1)


def given(rows, heads, shared, tokens, dtype):
    """Queries and cache as a target has them, neither of them contiguous, and a tree's mask."""
    generator = torch.Generator().manual_seed(rows * 100 + heads)
    fused = torch.randn(rows, heads + 2 * shared, 8, generator=generator).to(dtype)
    cached = torch.randn(2, shared, tokens + 20, 8, generator=generator).to(dtype)
    mask = torch.zeros(rows, tokens)
    mask[:, tokens - rows :][torch.ones(rows, rows).triu(1) > 0] = -torch.inf
    if rows > 2:
        mask[2, tokens - rows + 1] = -torch.inf  # a sibling
    one = None if rows == 1 else mask.to(dtype)
    return fused[:, :heads], cached[0][:, :tokens], cached[1][:, :tokens], one


@pytest.mark.parametrize("worth", [0, attention.WORTH])
@pytest.mark.parametrize("lacking", [False, True])
@pytest.mark.parametrize("dtype", list(NEAR))
@pytest.mark.parametrize("heads", [(4, 4), (4, 2), (6, 2), (7, 1)])
@pytest.mark.parametrize("rows", [1, 2, 5, FEW, FEW + 1])
def test_rows_mix_what_the_definition_says(rows, heads, dtype, lacking, worth, monkeypatch):
    monkeypatch.setattr(attention, "WORTH", worth)
    asked = given(rows, *heads, 31, dtype)
    found = attend(*asked, lacking=lacking)
    assert found.shape == asked[0].shape
    assert found.dtype == dtype
    assert (found.double() - defined(*asked)).abs().max() < NEAR[dtype]


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
