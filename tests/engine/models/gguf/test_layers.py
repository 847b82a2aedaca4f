"""The first layers of a GGUF file are what early exit reads in torch."""

from pathlib import Path

import pytest
import torch

from engine.errors import ModelUnusable
from engine.models.gguf.header import read_header
from engine.models.gguf.layers import first_layers
from engine.models.gguf.target import LlamaCppTarget
from engine.models.own.target import load_target
from engine.request import ModelSpec
from engine.speculation.tree import chain
from tests.engine.models.gguf.files import exported, random_gguf

POCKET = Path(__file__).parents[4] / "engine/bundled/pocket"
IDS = [5, 60, 700, 81, 9]


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    return exported(POCKET, tmp_path_factory.mktemp("gguf") / "pocket.gguf")


@pytest.mark.parametrize("layers", [1, 4])
def test_its_logits_are_those_of_the_exit(file, tmp_path, layers):
    short = first_layers(file, layers, tmp_path)
    spec = ModelSpec("x", str(short), slots=1, threads=1, kv_type="f32", flash_attention=False)
    found = LlamaCppTarget(spec).score([0], [chain(IDS)])[0].logits
    whole = load_target(POCKET, "float32", "cpu")
    wanted = torch.cat([whole.shallow([0], [token], layers)[0] for token in IDS])
    assert (found - wanted).abs().max() < 1e-3


def test_it_is_written_once_and_again_when_the_source_changed(tmp_path):
    source = random_gguf(tmp_path / "a.gguf", layers=3)
    first = first_layers(source, 2, tmp_path / "short")
    written = first.stat().st_mtime_ns
    assert first_layers(source, 2, tmp_path / "short") == first
    assert first.stat().st_mtime_ns == written
    source.write_bytes(source.read_bytes() + bytes(32))
    assert first_layers(source, 2, tmp_path / "short") != first


def test_everything_else_is_copied(tmp_path):
    source = random_gguf(tmp_path / "a.gguf", layers=3)
    long, short = read_header(source), read_header(first_layers(source, 1, tmp_path))
    assert short.of("block_count") == 1
    assert {**short.metadata, "llama.block_count": 3} == dict(long.metadata)
    kept = {t.name: (t.shape, t.type) for t in long.tensors if not t.name.startswith(("blk.1", "blk.2"))}  # fmt: skip
    assert {t.name: (t.shape, t.type) for t in short.tensors} == kept


@pytest.mark.parametrize("layers", [0, 3, 9])
def test_a_number_of_layers_that_is_none_is_refused(tmp_path, layers):
    source = random_gguf(tmp_path / "a.gguf", layers=3)
    with pytest.raises(ModelUnusable, match="3 layers"):
        first_layers(source, layers, tmp_path)
