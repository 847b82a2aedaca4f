"""Folders that must not load: every refusal names what is wrong."""

import json
import re
import shutil
from pathlib import Path

import pytest
import torch
import transformers
from safetensors.torch import load_file

from engine.errors import ModelUnusable
from engine.models.own.target import load_target
from tests.engine.models import checkpoints
from tests.engine.models.checkpoints import edit_config, edit_weights

SMALL = {**checkpoints.SMALL, "num_hidden_layers": 3}
KEY = "model.layers.1.self_attn.k_proj"
UP = "model.layers.0.mlp.up_proj.weight"


def made(folder, config):
    transformers.AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    return folder


@pytest.fixture
def folder(tmp_path):
    return made(tmp_path, transformers.LlamaConfig(**SMALL))


def refused(folder, match):
    """Loading ends with one sentence that says ``match``."""
    with pytest.raises(ModelUnusable, match=match) as refusal:
        load_target(folder, "float32", "cpu")
    assert "\n" not in str(refusal.value)


# Control: what is refused below is refused for the one thing that was done to it.


def test_the_folder_itself_loads_with_a_field_that_old_checkpoints_store(folder):
    old = "model.layers.0.self_attn.rotary_emb.inv_freq"
    edit_weights(folder, lambda t: t.update({old: torch.ones(6)}))
    edit_config(folder, _attn_implementation="sdpa", _attn_implementation_autoset=True)
    target = load_target(folder, "float32", "cpu")
    assert (target.vocab, target.layers) == (SMALL["vocab_size"], 3)


@pytest.mark.parametrize(
    ("family", "name"),
    [
        ("Llama", "model.embed_tokens.weight"),
        ("Llama", "model.norm.weight"),
        ("Llama", "lm_head.weight"),
        ("Llama", "model.layers.0.input_layernorm.weight"),
        ("Llama", f"{KEY}.weight"),
        ("Qwen2", f"{KEY}.bias"),  # without it the model would still run, and answer nonsense
        ("Qwen3", "model.layers.1.self_attn.q_norm.weight"),
    ],
)
def test_a_missing_tensor_is_named(tmp_path, family, name):
    """transformers would fill it with random numbers and continue."""
    made(tmp_path, getattr(transformers, f"{family}Config")(**SMALL))
    edit_weights(tmp_path, lambda t: t.pop(name))
    refused(tmp_path, rf"^the weights lack the tensor {re.escape(name)}; download the model again$")


NO_PLACE = "1 tensors have no place in this family, {} first$"
MISSHAPEN = r"^tensor {} has shape \(7,\), the config says \((61, )?48,?\)$"


@pytest.mark.parametrize(
    ("name", "tensor", "says"),
    [
        *((name, torch.ones(2), NO_PLACE) for name in (
            "model.layers.0.extra.weight", "model.layers.3.mlp.up_proj.weight", "visual.weight",
            "model.layers.0.self_attn.q_proj.bias",
        )),
        ("model.norm.weight", torch.ones(7), MISSHAPEN),
        ("model.embed_tokens.weight", torch.ones(7), MISSHAPEN),
        (UP, torch.ones((64, 48), dtype=torch.int8), "tensor {} is stored as int8"),
    ],
)  # fmt: skip
def test_a_tensor_that_does_not_fit_is_named(folder, name, tensor, says):
    edit_weights(folder, lambda t: t.update({name: tensor}))
    refused(folder, says.format(re.escape(name)))


@pytest.mark.parametrize("length", [0, 4, 1000, -1])
def test_a_truncated_or_missing_file_is_refused(folder, length):
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:length])
    refused(folder, r"model\.safetensors: not a readable safetensors file: ")
    file.unlink()
    refused(folder, r"model\.safetensors is missing; download the model again$")


@pytest.mark.parametrize("file", ["pytorch_model.bin", "model.pt", "weights.ckpt"])
def test_pickles_are_never_opened(folder, file):
    (folder / "model.safetensors").unlink()
    (folder / file).write_bytes(b"cos\nsystem\n(S'touch owned'\ntR.")
    refused(folder, rf"the weights are in {re.escape(file)}, a format that can run code")
    assert not Path("owned").exists()


class TestIndex:
    @staticmethod
    def write(folder, content):
        text = content if isinstance(content, str) else json.dumps(content)
        (folder / "model.safetensors.index.json").write_text(text)

    @pytest.mark.parametrize(
        ("shard", "says"),
        [
            *((shard, "points outside the model's folder$") for shard in (
                "../outside/w.safetensors", "/etc/passwd", "a/../../w.safetensors",
                "..\\w.safetensors", "..", "",
            )),
            ("pytorch_model.bin", "'pytorch_model.bin' is no safetensors file"),
            ("w-2.safetensors", r"w-2\.safetensors is missing; download the model again"),
        ],
    )  # fmt: skip
    def test_one_that_names_a_file_it_may_not_is_refused(self, folder, shard, says):
        """transformers follows it outside; here the file it points to is there and good."""
        (folder.parent / "outside").mkdir(exist_ok=True)
        shutil.copy(folder / "model.safetensors", folder.parent / "outside" / "w.safetensors")
        self.write(folder, {"weight_map": {"model.norm.weight": shard}})
        refused(folder, says)

    def test_one_that_names_a_tensor_that_no_file_holds_is_refused(self, folder):
        names = dict.fromkeys(load_file(folder / "model.safetensors"), "model.safetensors")
        self.write(folder, {"weight_map": {**names, "lost": "model.safetensors"}})
        refused(folder, "the index names 1 tensors that no file holds, lost first")

    def test_two_files_with_the_same_tensor_are_refused(self, folder):
        shutil.copy(folder / "model.safetensors", folder / "twin.safetensors")
        self.write(folder, {"weight_map": {"a": "model.safetensors", "b": "twin.safetensors"}})
        refused(folder, "two files hold the tensor ")

    @pytest.mark.parametrize("content", ["", "{", "[]", "{}", '{"weight_map": []}', "[" * 100_000])
    def test_one_that_is_none_is_refused(self, folder, content):
        self.write(folder, content)
        refused(folder, r"index\.json (cannot be read|holds no fields|has no weight_map)")


def rope(kind, **fields):
    return {"rope_parameters": {"rope_type": kind, "rope_theta": 1e4, **fields}}


LONGROPE = rope(
    "longrope", original_max_position_embeddings=64, short_factor=[1.0] * 5, long_factor=[1.0] * 5,
    factor=4.0,
)  # fmt: skip
OWN_CODE = {"AutoModelForCausalLM": "modeling_odd.OddForCausalLM"}
OWN_CONFIG = {"AutoConfig": "someone/repo--configuration_odd.OddConfig"}
CONFIGS = [  # changes of a good config, and what the refusal says
    *(({field: value}, rf"config\.json says {field} is ") for field, value in (
        ("hidden_size", -48), ("hidden_size", 0), ("num_hidden_layers", 10**9),
        ("num_attention_heads", -4), ("num_key_value_heads", 0), ("intermediate_size", 2**40),
        ("vocab_size", -1), ("vocab_size", 10**12), ("max_position_embeddings", 10**15),
        ("head_dim", -8), ("rms_norm_eps", float("nan")), ("rms_norm_eps", -1.0),
    )),
    (rope("default", rope_theta=-1.0), r"config\.json says rope_theta is "),
    (rope("default", rope_theta=float("inf")), r"config\.json says rope_theta is "),
    ({"hidden_size": "48"}, r"config\.json cannot be used: "),
    ({"num_hidden_layers": 2.5}, r"config\.json cannot be used: "),
    ({"num_attention_heads": None}, r"config\.json cannot be used: "),
    ({"num_key_value_heads": 3}, "4 attention heads share 3 key heads"),
    (rope("llama3", factor=8.0), "config.json cannot be used: .*Missing required keys.*'llama3'"),
    (LONGROPE, "no usable numbers for rotary scaling 'longrope'|cannot be used"),
    (rope("proportional"), "rotary scaling 'proportional' is not supported"),
    ({"quantization_config": {"quant_method": "gptq", "bits": 4}},
     r"the weights are stored quantised \(gptq\), which is not supported"),
    ({"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"]},
     "family 'gpt2' is not supported; supported are llama, "),
    ({"auto_map": OWN_CODE}, r"needs code of its own \(modeling_odd\.OddForCausalLM, in auto_map\)"),
    ({"auto_map": OWN_CONFIG}, "needs code of its own"),
    ({"model_type": "odd", "auto_map": OWN_CONFIG}, "needs code of its own"),
    ({"_attn_implementation": "someone/kernels"}, "wants code from 'someone/kernels'"),
    ({"_attn_implementation_internal": "someone/kernels"}, "wants code from 'someone/kernels'"),
]  # fmt: skip


@pytest.mark.parametrize(("changes", "says"), CONFIGS, ids=str)
def test_a_config_that_cannot_be_right_is_refused(folder, changes, says):
    edit_config(folder, **changes)
    (folder / "modeling_odd.py").write_text("raise SystemExit('ran')")
    refused(folder, says)


@pytest.mark.parametrize("text", ["", "{", "[]", "[" * 100_000, '{"vocab_size": 3}'])
def test_what_is_no_config_is_refused(folder, text):
    (folder / "config.json").write_text(text)
    refused(folder, r"config\.json (cannot be read|holds no fields|names no model_type)")


@pytest.mark.parametrize(
    ("field", "value"), [("rope_theta", "x"), ("rope_theta", [1]), ("sliding_window", "x")]
)
def test_a_number_that_is_none_is_named(folder, field, value):
    """A TypeError in the engine's process was reported as if the engine were broken."""
    content = json.loads((folder / "config.json").read_text())
    del content["rope_parameters"]
    (folder / "config.json").write_text(json.dumps(content | {field: value}))
    refused(
        folder,
        rf"config\.json cannot be used: {field} is .*, which is no (whole )?number; download",
    )


@pytest.mark.parametrize("nest", ['{"a":%s}', "[%s]"])
def test_fields_that_are_nested_without_end_are_refused(folder, nest):
    """What is still valid JSON went too deep for the library: a RecursionError as it loaded."""
    deep = "1"
    for _ in range(900):
        deep = nest % deep
    (folder / "config.json").write_text(f'{{"model_type": "llama", "x": {deep}}}')
    refused(folder, "config.json nests its fields more than 32 deep; download")


def test_files_that_a_family_once_needed_are_not_read(folder):
    """Phi-3's published folders still name them."""
    named = {
        "AutoConfig": "configuration_llama.LlamaConfig",
        "AutoModelForCausalLM": "modeling_llama.LlamaForCausalLM",
    }
    edit_config(folder, auto_map=named)
    (folder / "modeling_llama.py").write_text("raise SystemExit('ran')")
    assert load_target(folder, "float32", "cpu").layers == 3


@pytest.mark.parametrize(
    ("dtype", "device", "says"),
    [
        ("float8", "cpu", "'float8' is not supported; choose float32 or bfloat16"),
        ("float32", "cuda", "device 'cuda' is not there"),
    ],
)
def test_unknown_dtype_and_missing_device_are_refused(folder, dtype, device, says, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ModelUnusable, match=says):
        load_target(folder, dtype, device)
