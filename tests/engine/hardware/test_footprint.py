"""Bytes predicted from headers against bytes measured in a process of its own."""

import json
import os
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from app.commands.export_gguf import ExportGgufOptions
from app.commands.export_gguf import run as export_gguf
from app.placement.plans import forms
from app.settings import Settings
from engine.hardware.checkpoint_sizes import safetensors, stored
from engine.hardware.footprint import Footprint, grown_rows, torch_footprint
from engine.hardware.shape import shape_of
from engine.models.gguf.library import llama_library
from engine.models.gguf.target import LlamaCppTarget
from engine.request import ModelSpec
from tests.engine.models.gguf.files import random_gguf

needs_llama_cpp = pytest.mark.skipif(
    find_spec("gguf") is None or find_spec("llama_cpp") is None,
    reason="gguf or llama-cpp-python is not installed: slipstream[gguf]",
)
ROOT = Path(__file__).resolve().parents[3]
POCKET = ROOT / "engine/bundled/pocket"
TOKENS = 1024


def footprint(folder: Path, dtype: str) -> Footprint:
    shape = shape_of(json.loads((folder / "config.json").read_text()), str(folder))
    held = stored(safetensors(folder), shape.layers, tied=shape.tied)
    return torch_footprint(folder.name, shape, held, dtype, "cpu")


def inflated(folder: Path, times: int) -> Path:
    """Pocket with feed-forward parts that many times as wide, as a folder of its own."""
    config = json.loads((POCKET / "config.json").read_text())
    extra = config["intermediate_size"] * (times - 1)
    config["intermediate_size"] *= times
    (folder / "config.json").write_text(json.dumps(config))
    tensors = load_file(POCKET / "model.safetensors")
    for name, tensor in tensors.items():
        side = 1 if "down_proj" in name else 0
        if "mlp." in name:
            shape = (tensor.shape[0], extra) if side else (extra, tensor.shape[1])
            tensors[name] = torch.cat((tensor, torch.zeros(shape, dtype=tensor.dtype)), side)
    save_file(tensors, folder / "model.safetensors")
    return folder


@pytest.mark.parametrize(("dtype", "times"), [("float32", 1), ("float32", 8), ("bfloat16", 12)])
def test_weights_and_cache_of_the_torch_target(tmp_path: Path, dtype: str, times: int) -> None:
    folder = inflated(tmp_path, times)
    predicted = footprint(folder, dtype)
    found = memory_of("torch", folder, dtype)
    expected = predicted.weights + predicted.position * predicted.context
    assert found["weights"] == pytest.approx(expected, rel=0.05)
    assert found["peak"] < expected + predicted.loading
    assert predicted.loading < 0.8 * expected  # far from two models
    assert found["cache"] == predicted.cache(TOKENS, 0, 1)


@needs_llama_cpp
def test_all_that_a_gguf_target_takes(tmp_path: Path) -> None:
    file = tmp_path / "wide.gguf"
    wide = inflated(tmp_path, 16)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(POCKET / name, wide)
    write = ExportGgufOptions(Settings(home=tmp_path), str(wide), "f16", file)
    assert export_gguf(write) == 0
    (predicted,) = forms("wide", file, "llama_cpp")
    expected = predicted.weights + predicted.cache(TOKENS, 0, 1) + predicted.working(TOKENS, 64)
    found = memory_of("llama_cpp", file)
    assert found["all"] == pytest.approx(expected, rel=0.05)
    assert found["empty"] < expected - 0.8 * predicted.cache(TOKENS, 0, 1)  # it grows with use


@needs_llama_cpp
@pytest.mark.parametrize(("context", "slots"), [(2048, 1), (8192, 4), (32768, 1), (32768, 4)])
@pytest.mark.parametrize("vocab", [4100, 60000])
def test_what_llama_cpp_reserves(tmp_path: Path, context: int, slots: int, vocab: int) -> None:
    """By its own log: the cache, and buffers of a pass, of which logits are the most or cells are."""
    file = random_gguf(tmp_path / "m.gguf", vocab=vocab, hidden=256, layers=4, context=32768)
    (predicted,) = forms("m", file, "llama_cpp")
    shape = {"context": context, "slots": slots, "flash_attention": True}
    spec = ModelSpec("m", str(file), backend="llama_cpp", exact=False, **shape)
    logged: list[str] = []
    with llama_library().listening(lambda _, words: logged.append(words)):
        target = LlamaCppTarget(spec)
    found = re.findall(r"(KV|compute) buffer size = +([0-9.]+) MiB", "".join(logged))
    reserved = {name: float(size) * 2**20 for name, size in found}
    assert reserved["KV"] == pytest.approx(predicted.cache(context, 0, slots), rel=0.05)
    outputs = 128 * 4 * vocab
    both = predicted.working(context, 0, slots)
    assert reserved["compute"] + outputs == pytest.approx(both, rel=0.1, abs=2 * 2**20)
    assert target.llama.outputs * 4 * vocab == outputs


def memory_of(kind: str, place: Path, *arguments: str) -> dict[str, int]:
    script = Path(__file__).with_name("memory_of.py")
    command = [sys.executable, str(script), kind, str(place), *arguments, str(TOKENS)]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    run = subprocess.run(
        command, capture_output=True, text=True, cwd=ROOT, env=environment, check=False
    )
    assert run.returncode == 0, run.stderr
    return dict(json.loads(run.stdout))


def test_a_cache_grows_by_doubling() -> None:
    assert [grown_rows(rows) for rows in (1, 512, 513, 4096, 4097)] == [512, 512, 1024, 4096, 8192]
