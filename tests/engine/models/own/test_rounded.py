"""Rounded weights are kept beside the model, and used while its files stay the same."""

import errno
import os

import pytest
import torch
import transformers

from engine.models.own.rounded import KEPT
from engine.models.own.smoothing import Smoother
from engine.models.own.target import load
from engine.platform.onednn_int8 import can_multiply_rounded
from engine.request import ModelSpec
from engine.speculation.tree import chain
from tests.engine.models.checkpoints import IDS, OWN, SMALL, saved

pytestmark = pytest.mark.skipif(
    not can_multiply_rounded(torch.device("cpu")), reason="this processor has no products of bytes"
)


@pytest.fixture(autouse=True)
def all_are_large(monkeypatch):
    monkeypatch.setattr("engine.models.own.rounded.WORTH_KEEPING", 0)


@pytest.fixture
def folder(tmp_path):
    place = tmp_path / "model"
    place.mkdir()
    saved(transformers.LlamaConfig(**SMALL, attention_bias=True), place)
    return place


@pytest.fixture
def rounds(monkeypatch):
    """How often a model was rounded."""
    found, of = [], Smoother.of

    def counted(outer):
        found.append(outer)
        return of(outer)

    monkeypatch.setattr(Smoother, "of", counted)
    return found


def logits(folder):
    target = load(ModelSpec("m", str(folder), dtype="bfloat16", weights="int8"))
    return target.score([0], [chain(IDS[:40])])[0].logits


@pytest.mark.parametrize("family", ["llama biased", "qwen3", "phi3", "smollm3", "olmo2", "smollm2"])
def test_the_next_load_is_the_same_model_to_the_bit(family, tmp_path, rounds):
    saved(OWN[family], tmp_path)
    assert torch.equal(logits(tmp_path), logits(tmp_path))
    assert len(rounds) == 1


def test_other_files_are_rounded_again(folder, rounds):
    logits(folder)
    weights = folder / "model.safetensors"
    os.utime(weights, (1, 1))
    logits(folder)
    assert len(rounds) == 2
    assert [path.name for path in folder.iterdir() if KEPT in path.name] == [KEPT]


@pytest.mark.parametrize("name", ["outer", "layer-001"])
def test_what_was_damaged_is_made_anew(folder, rounds, caplog, name):
    wanted = logits(folder)
    (folder / KEPT / name).write_bytes(b"damaged")
    assert torch.equal(logits(folder), wanted)
    assert "is made again" in caplog.text
    assert torch.equal(logits(folder), wanted)
    assert len(rounds) == 2


def test_a_full_disk_keeps_nothing_and_stops_nothing(folder, monkeypatch, caplog):
    def full(tensors, file):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("engine.models.own.rounded.save_file", full)
    assert logits(folder).isfinite().all()
    assert "No space left on device" in caplog.text
    assert not [path for path in folder.iterdir() if KEPT in path.name]


def test_small_models_are_not_kept(folder, monkeypatch):
    monkeypatch.setattr("engine.models.own.rounded.WORTH_KEEPING", 2**28)
    logits(folder)
    assert not [path for path in folder.iterdir() if KEPT in path.name]
