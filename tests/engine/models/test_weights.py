"""Folders that must not load: every refusal names what is wrong."""

import json

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from engine.errors import ModelUnusable
from engine.models.torch_target import load_target
from tests.engine.models.test_torch_target import SMALL


@pytest.fixture
def folder(tmp_path):
    config = transformers.LlamaConfig(**SMALL)
    transformers.AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path)
    return tmp_path


def edit_config(folder, **changes):
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


def edit_weights(folder, change):
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def refused(folder, match):
    with pytest.raises(ModelUnusable, match=match):
        load_target(folder, "float32", "cpu")


def test_a_missing_tensor_is_named(folder):
    """transformers would fill it with random numbers and go on."""
    edit_weights(folder, lambda t: t.pop("model.layers.1.mlp.up_proj.weight"))
    refused(folder, r"model\.layers\.1\.mlp\.up_proj\.weight")


def test_a_tensor_without_a_place_is_named(folder):
    edit_weights(folder, lambda t: t.update({"model.layers.0.extra.weight": torch.ones(2)}))
    refused(folder, r"1 tensors have no place.*extra")


def test_a_misshapen_tensor_is_named_with_both_shapes(folder):
    edit_weights(folder, lambda t: t.update({"model.norm.weight": torch.ones(7)}))
    refused(folder, r"model\.norm\.weight has shape \(7,\).*\(48,\)")


def test_an_unknown_family_is_named(folder):
    edit_config(folder, model_type="gpt2", architectures=["GPT2LMHeadModel"])
    refused(folder, "gpt2")


def test_a_truncated_file_is_refused(folder):
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:1000])
    refused(folder, "not a readable safetensors file")


def test_a_missing_file_is_refused(folder):
    (folder / "model.safetensors").unlink()
    refused(folder, "not a readable safetensors file")


@pytest.mark.parametrize("shard", ["../outside/w.safetensors", "/etc/passwd"])
def test_an_index_that_points_outside_is_refused(folder, shard):
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"model.norm.weight": shard}}))
    refused(folder, "points outside")


def test_an_unsupported_rotary_scaling_is_named(folder):
    edit_config(folder, rope_parameters={"rope_type": "dynamic", "factor": 2.0, "rope_theta": 1e4})
    refused(folder, "dynamic")


def test_unknown_dtype_and_missing_device_are_refused(folder):
    with pytest.raises(ModelUnusable, match="float16"):
        load_target(folder, "float16", "cpu")
    if not torch.cuda.is_available():
        with pytest.raises(ModelUnusable, match="cuda"):
            load_target(folder, "float32", "cuda")


def test_a_sliding_window_bounds_the_context(tmp_path):
    config = transformers.MistralConfig(**SMALL, sliding_window=64)
    transformers.AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path)
    assert load_target(tmp_path, "float32", "cpu").context == 64
