"""Pieces: every row once, every span on pages and inside the bound."""

from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import ModelUnusable
from engine.interfaces.target import MapParts
from engine.models.offload.shards import PAGE, cut
from engine.models.offload.tensor_ranges import TensorRange, locate
from tests.engine.models.offload.conftest import Stored


@given(
    rows=st.lists(st.integers(1, 700), min_size=1, max_size=3),
    columns=st.integers(1, 3000),
    start=st.integers(0, 10_000),
    most=st.integers(4 * PAGE, 40 * PAGE),
)
def test_pieces_tile_their_map(rows: list[int], columns: int, start: int, most: int) -> None:
    extents = {
        str(i): TensorRange(Path("f"), start, count, columns, torch.float32)
        for i, count in enumerate(rows)
    }
    pieces = cut([MapParts(0, "m", tuple(extents))], extents, most)[0, "m"]
    following = 0
    for piece in pieces:
        assert piece.first == following
        following += piece.rows
        first, size = piece.span
        assert first % PAGE == 0
        assert size % PAGE == 0
        assert first <= piece.start
        assert piece.start + piece.size <= first + size
        assert size <= most or piece.rows == 1
    assert following == sum(rows)


def test_extents_are_where_the_bytes_are(stored: Stored) -> None:
    found = locate(stored.streaming.files)
    assert set(found) == set(stored.tensors)  # the vectors are left out
    for name, extent in found.items():
        with extent.file.open("rb") as file:
            file.seek(extent.start)
            data = bytearray(file.read(extent.size))
        read = torch.frombuffer(data, dtype=extent.dtype).view(extent.rows, extent.columns)
        assert torch.equal(read, stored.tensors[name])


def test_a_tensor_that_cannot_be_streamed_is_named() -> None:
    with pytest.raises(ModelUnusable, match=r"lm\.weird cannot be streamed"):
        cut([MapParts(0, "m", ("lm.weird",))], {}, 10 * PAGE)


def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "x.safetensors"
    file.write_bytes(b"\xff" * 100)
    with pytest.raises(ModelUnusable, match="not a readable safetensors file"):
        locate([file])
