"""Folders that must not load: every refusal names what is wrong."""

import json
import re
import shutil
from pathlib import Path

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from engine.errors import ModelUnusable
from engine.models.own.target import load_target
from tests.engine.decoder import test_families
from tests.engine.decoder.test_families import edit_config

SMALL = {**test_families.SMALL, "num_hidden_layers": 3}


@pytest.fixture
def folder(tmp_path):
    config = transformers.LlamaConfig(**SMALL)
    transformers.AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path)
    return tmp_path


def edit_weights(folder, change):
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def refused(folder, match):
    """Loading ends with one sentence that says ``match``."""
    with pytest.raises(ModelUnusable, match=match) as refusal:
        load_target(folder, "float32", "cpu")
    assert "\n" not in str(refusal.value)


def test_the_folder_itself_loads(folder):
    """Control: what is refused below is refused for the one thing that was done to it."""
    assert load_target(folder, "float32", "cpu").vocab == SMALL["vocab_size"]


@pytest.mark.parametrize(
    "name",
    [
        "model.embed_tokens.weight",
        "model.norm.weight",
        "lm_head.weight",
        "model.layers.0.input_layernorm.weight",
        "model.layers.2.self_attn.k_proj.weight",
        "model.layers.1.mlp.up_proj.weight",
    ],
)
def test_a_missing_tensor_is_named(folder, name):
    """transformers would fill it with random numbers and continue."""
    edit_weights(folder, lambda t: t.pop(name))
    refused(folder, rf"^the weights lack the tensor {re.escape(name)}; download the model again$")


@pytest.mark.parametrize("kind", ["bias", "head norm"])
def test_a_missing_tensor_of_a_kind_that_others_do_without_is_named(tmp_path, kind):
    """Qwen2 without a bias, or Qwen3 without a head norm, would still run, and answer nonsense."""
    config, name = {
        "bias": (transformers.Qwen2Config(**SMALL), "model.layers.1.self_attn.k_proj.bias"),
        "head norm": (transformers.Qwen3Config(**SMALL), "model.layers.1.self_attn.q_norm.weight"),
    }[kind]
    transformers.AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path)
    edit_weights(tmp_path, lambda t: t.pop(name))
    refused(tmp_path, rf"lack the tensor {re.escape(name)}")


@pytest.mark.parametrize(
    "name", ["model.layers.0.extra.weight", "model.layers.3.mlp.up_proj.weight", "visual.weight",
             "model.layers.0.self_attn.q_proj.bias"],
)  # fmt: skip
def test_a_tensor_without_a_place_is_named(folder, name):
    edit_weights(folder, lambda t: t.update({name: torch.ones(2)}))
    refused(folder, rf"1 tensors have no place in this family, {re.escape(name)} first$")


def test_frequencies_that_old_checkpoints_store_are_no_surplus(folder):
    name = "model.layers.0.self_attn.rotary_emb.inv_freq"
    edit_weights(folder, lambda t: t.update({name: torch.ones(6)}))
    assert load_target(folder, "float32", "cpu").layers == 3


@pytest.mark.parametrize("name", ["model.norm.weight", "model.embed_tokens.weight"])
def test_a_misshapen_tensor_is_named_with_both_shapes(folder, name):
    edit_weights(folder, lambda t: t.update({name: torch.ones(7)}))
    refused(
        folder, rf"^tensor {re.escape(name)} has shape \(7,\), the config says \((61, )?48,?\)$"
    )


def test_an_unknown_family_is_named(folder):
    edit_config(folder, model_type="gpt2", architectures=["GPT2LMHeadModel"])
    refused(folder, "family 'gpt2' is not supported; supported are llama, ")


@pytest.mark.parametrize("length", [0, 4, 1000, -1])
def test_a_truncated_file_is_refused(folder, length):
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:length])
    refused(folder, r"model\.safetensors: not a readable safetensors file: ")


def test_a_missing_file_is_refused(folder):
    (folder / "model.safetensors").unlink()
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
        "shard", ["../outside/w.safetensors", "/etc/passwd", "a/../../w.safetensors",
                  "..\\w.safetensors", "..", ""],
    )  # fmt: skip
    def test_one_that_points_outside_is_refused(self, folder, shard):
        """transformers follows it; here the file it points to is there and good."""
        (folder.parent / "outside").mkdir(exist_ok=True)
        shutil.copy(folder / "model.safetensors", folder.parent / "outside" / "w.safetensors")
        self.write(folder, {"weight_map": {"model.norm.weight": shard}})
        refused(folder, "points outside the model's folder$")

    def test_one_that_names_another_format_is_refused(self, folder):
        self.write(folder, {"weight_map": {"model.norm.weight": "pytorch_model.bin"}})
        refused(folder, "'pytorch_model.bin' is no safetensors file")

    def test_one_that_names_a_file_that_is_not_there_is_refused(self, folder):
        self.write(folder, {"weight_map": {"model.norm.weight": "w-2.safetensors"}})
        refused(folder, r"w-2\.safetensors is missing; download the model again")

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
        refused(folder, r"index\.json (cannot be read|has no weight_map)")


class TestConfig:
    @pytest.mark.parametrize(
        ("field", "value"),
        [
            ("hidden_size", -48),
            ("hidden_size", 0),
            ("num_hidden_layers", 10**9),
            ("num_attention_heads", -4),
            ("num_key_value_heads", 0),
            ("intermediate_size", 2**40),
            ("vocab_size", -1),
            ("vocab_size", 10**12),
            ("max_position_embeddings", 10**15),
            ("head_dim", -8),
            ("rms_norm_eps", float("nan")),
            ("rms_norm_eps", -1.0),
        ],
    )
    def test_absurd_numbers_are_refused_before_anything_is_made_of_them(self, folder, field, value):
        edit_config(folder, **{field: value})
        refused(folder, rf"config\.json says {field} is ")

    @pytest.mark.parametrize(
        "rope", [{"rope_theta": -1.0}, {"rope_theta": float("inf")}], ids=["negative", "infinite"]
    )
    def test_numbers_inside_other_fields_are_checked_too(self, folder, rope):
        edit_config(folder, rope_parameters={"rope_type": "default", **rope})
        refused(folder, r"config\.json says rope_theta is ")

    @pytest.mark.parametrize(
        "changes",
        [{"hidden_size": "48"}, {"num_hidden_layers": 2.5}, {"num_attention_heads": None}],
    )
    def test_values_of_another_type_are_refused(self, folder, changes):
        edit_config(folder, **changes)
        refused(folder, r"config\.json cannot be used: ")

    def test_heads_that_cannot_be_shared_are_refused(self, folder):
        edit_config(folder, num_key_value_heads=3)
        refused(folder, "4 attention heads share 3 key heads")

    @pytest.mark.parametrize("text", ["", "{", "[]", "[" * 100_000, '{"vocab_size": 3}'])
    def test_what_is_no_config_is_refused(self, folder, text):
        (folder / "config.json").write_text(text)
        refused(folder, r"config\.json (cannot be read|holds no fields|names no model_type)")

    def test_a_scaling_without_its_numbers_is_refused(self, folder):
        edit_config(
            folder, rope_parameters={"rope_type": "llama3", "rope_theta": 1e4, "factor": 8.0}
        )
        refused(folder, "config.json cannot be used: .*Missing required keys.*'llama3'")

    def test_a_scaling_whose_numbers_do_not_fit_is_refused(self, folder):
        rope = {
            "rope_type": "longrope", "rope_theta": 1e4, "original_max_position_embeddings": 64,
            "short_factor": [1.0] * 5, "long_factor": [1.0] * 5, "factor": 4.0,
        }  # fmt: skip
        edit_config(folder, rope_parameters=rope)
        refused(folder, "no usable numbers for rotary scaling 'longrope'|cannot be used")

    def test_an_unsupported_rotary_scaling_is_named(self, folder):
        edit_config(folder, rope_parameters={"rope_type": "proportional", "rope_theta": 1e4})
        refused(folder, "rotary scaling 'proportional' is not supported")

    @pytest.mark.parametrize(
        ("field", "value"), [("rope_theta", "x"), ("rope_theta", [1]), ("sliding_window", "x")]
    )
    def test_a_number_that_is_none_is_named(self, folder, field, value):
        """A TypeError in the engine's process was reported as if the engine were broken."""
        content = json.loads((folder / "config.json").read_text())
        del content["rope_parameters"]
        (folder / "config.json").write_text(json.dumps(content | {field: value}))
        refused(
            folder, rf"config\.json cannot be used: {field} is .*, which is no number; download"
        )

    @pytest.mark.parametrize("nest", ['{"a":%s}', "[%s]"])
    def test_fields_that_are_nested_without_end_are_refused(self, folder, nest):
        """What is still valid JSON went too deep for the library: a RecursionError as it loaded."""
        deep = "1"
        for _ in range(900):
            deep = nest % deep
        text = json.dumps({"model_type": "llama"})
        (folder / "config.json").write_text(f'{text[:-1]}, "x": {deep}}}')
        refused(folder, "config.json nests its fields more than 32 deep; download")

    def test_weights_that_are_stored_quantised_are_refused(self, folder):
        edit_config(folder, quantization_config={"quant_method": "gptq", "bits": 4})
        refused(folder, r"the weights are stored quantised \(gptq\), which is not supported")

    def test_bytes_without_a_word_of_their_quantisation_are_refused(self, folder):
        shape = (64, 48)
        name = "model.layers.0.mlp.up_proj.weight"
        edit_weights(folder, lambda t: t.update({name: torch.ones(shape, dtype=torch.int8)}))
        refused(folder, rf"tensor {re.escape(name)} is stored as int8")


class TestForeignCode:
    def test_a_model_that_needs_its_own_is_refused(self, folder):
        edit_config(folder, auto_map={"AutoModelForCausalLM": "modeling_odd.OddForCausalLM"})
        (folder / "modeling_odd.py").write_text("raise SystemExit('ran')")
        refused(folder, r"needs code of its own \(modeling_odd\.OddForCausalLM, in auto_map\)")

    def test_a_config_class_of_its_own_is_refused(self, folder):
        edit_config(folder, auto_map={"AutoConfig": "someone/repo--configuration_odd.OddConfig"})
        refused(folder, "needs code of its own")

    def test_one_whose_family_the_library_does_not_know_is_refused_with_the_reason(self, folder):
        edit_config(
            folder, model_type="odd", auto_map={"AutoConfig": "configuration_odd.OddConfig"}
        )
        refused(folder, "needs code of its own")

    def test_files_that_a_family_once_needed_are_not_read(self, folder):
        """Phi-3's published folders still name them."""
        named = {
            "AutoConfig": "configuration_llama.LlamaConfig",
            "AutoModelForCausalLM": "modeling_llama.LlamaForCausalLM",
        }
        edit_config(folder, auto_map=named)
        (folder / "modeling_llama.py").write_text("raise SystemExit('ran')")
        assert load_target(folder, "float32", "cpu").layers == 3

    @pytest.mark.parametrize("name", ["_attn_implementation", "_attn_implementation_internal"])
    def test_kernels_from_elsewhere_are_refused(self, folder, name):
        edit_config(folder, **{name: "someone/kernels"})
        refused(folder, "wants code from 'someone/kernels'")

    def test_an_attention_of_the_library_is_none(self, folder):
        edit_config(folder, _attn_implementation="sdpa", _attn_implementation_autoset=True)
        assert load_target(folder, "float32", "cpu").layers == 3


def test_unknown_dtype_and_missing_device_are_refused(folder):
    with pytest.raises(
        ModelUnusable, match="'float8' is not supported; choose float32 or bfloat16"
    ):
        load_target(folder, "float8", "cpu")
    if not torch.cuda.is_available():
        with pytest.raises(ModelUnusable, match="device 'cuda' is not there"):
            load_target(folder, "float32", "cuda")


def test_a_sliding_window_bounds_the_context(tmp_path):
    config = transformers.MistralConfig(**SMALL, sliding_window=64)
    transformers.AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path)
    assert load_target(tmp_path, "float32", "cpu").context == 64
