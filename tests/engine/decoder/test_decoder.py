"""Rotary embeddings against their definition."""

import math

import pytest
import torch

from engine.decoder.decoder import Rotary

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
