"""Passes by type of a file, measured with real files of a small model."""

import pytest

from engine.models.gguf.file_types import type_in_header
from engine.models.gguf.header import read_header

pytest.importorskip("llama_cpp.llama_cpp")
pytest.importorskip("gguf")


def test_every_type_is_made_and_every_width_is_measured(tmp_path):
    from engine.models.gguf.sample import write_sample
    from engine.runtime.row_measurement import measure

    said: list[str] = []
    kinds = ("q4_k_m", "q4_0", "bf16")
    write_sample(full := tmp_path / "full.gguf", layers=1)
    table = measure(full, said.append, exact=True, kinds=kinds)
    assert tuple(table.seconds) == kinds
    for kind, seconds in table.seconds.items():
        assert type_in_header(read_header(tmp_path / f"{kind}.gguf")) == kind
        assert len(seconds) == 3
        assert min(seconds) > 0
    assert table.shares("q4_k_m", "q4_k_m") == (1.0, 1.0, 1.0)
    assert said[0] == "making Q4_K_M, 1 of 3 types"
    assert said[-1] == "measuring passes of 16 rows"
