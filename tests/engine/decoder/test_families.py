"""Families of the own decoder: number formats, contexts, configs, and what a new family takes."""

import json
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file

from engine.decoder.architecture import (
    LONGEST,
    STATED,
    architecture,
    complete,
    library_config,
    rotary_table,
)
from engine.decoder.config import backend_for, read_config
from engine.decoder.families import FAMILIES
from engine.decoder.family import SEPARATE, Family, TensorNames
from engine.decoder.weights import load_weights
from engine.errors import ModelUnusable
from engine.models.gguf.export import open_source, write_vocabulary
from engine.models.gguf.header import read_header
from engine.models.own.target import load_target
from engine.speculation.tree import chain
from tests.bundled import POCKET
from tests.engine.models.checkpoints import (
    IDS,
    OWN,
    PHI4_MINI,
    ROPES,
    TREE,
    edit_config,
    near,
    oracle,
    ours,
    saved,
)

SAY_ALL = {
    "llama 2", "llama biased", "mistral", "mistral window", "qwen2", "qwen2.5 window", "qwen3",
    "smollm2",
}  # fmt: skip


def test_all_own_families_are_tested():
    assert {config.model_type for config in OWN.values()} == set(FAMILIES)


@pytest.mark.parametrize("family", OWN)
def test_bfloat16_runs_and_stays_near_float32(family, tmp_path):
    saved(OWN[family], tmp_path)
    half = load_target(tmp_path, "bfloat16", "cpu")
    full, rounded = (t.score([0], [chain(IDS[:40])])[0].logits for t in (ours(tmp_path), half))
    assert (full - rounded.float()).abs().max() < 0.05 * full.abs().max() + 0.05


@pytest.mark.gpu
@pytest.mark.parametrize("family", OWN)
def test_cuda_equals_the_processor(family, tmp_path):
    saved(OWN[family], tmp_path)
    target, device = ours(tmp_path), load_target(tmp_path, "float32", "cuda")
    for held in (target, device):
        held.feed(0, IDS[:20])
    found, wanted = (held.score([0], [TREE])[0].logits.cpu() for held in (device, target))
    assert (found - wanted).abs().max() < 1e-3


@pytest.mark.parametrize("family", ["mistral window", "qwen2.5 window", "phi3"])
def test_the_context_ends_where_the_sliding_window_does(family, tmp_path):
    """And no earlier: the last row of that context still sees everything."""
    reference = saved(OWN[family], tmp_path)
    target = ours(tmp_path)
    assert target.context == 48
    logits = target.score([0], [chain(IDS[:48])])[0].logits
    assert near(logits, oracle(reference, IDS[:48]))


@pytest.mark.parametrize(("asked", "context", "fed"), [(None, 64, 10), (200, 200, 70)])
def test_of_two_sets_of_rotary_factors_the_long_one_is_for_longer_contexts(
    tmp_path, asked, context, fed
):
    reference = saved(PHI4_MINI, tmp_path)
    target = ours(tmp_path, context=asked)
    assert target.context == context
    target.feed(0, IDS[:fed])
    ids = IDS[:context]
    logits = target.score([0], [chain(ids[fed:])])[0].logits
    assert near(logits, oracle(reference, ids)[fed:])
    other = ours(tmp_path, context=200 if asked is None else None)
    short, long = (t.score([1], [chain(IDS[:30])])[0].logits for t in (target, other))
    assert (short - long).abs().max() > 0.01


def test_the_context_asked_for_and_a_limit_bound_the_table(tmp_path):
    saved(OWN["llama 2"], tmp_path)
    assert ours(tmp_path, context=100).context == 100
    assert ours(tmp_path, context=10_000).context == 256
    edit_config(tmp_path, max_position_embeddings=1 << 27)
    weights = load_weights(tmp_path, torch.float32, torch.device("cpu"))
    assert weights.arch.context == LONGEST == weights.rotary.cos.shape[0]


@pytest.mark.parametrize(
    "changes",
    [
        {"model_type": "gpt_neox"},
        {"hidden_act": "gelu"},
        {"rope_scaling": {"type": "proportional"}},
        {"rope_parameters": {"rope_type": "proportional"}},
    ],
)
def test_other_models_go_to_transformers(changes, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "llama"} | changes))
    assert backend_for(tmp_path) == "hf"
    with pytest.raises(ModelUnusable, match="not supported"):
        load_weights(tmp_path, torch.float32, torch.device("cpu"))


@pytest.mark.parametrize("text", ["", "{", "[1]"])
def test_a_config_that_cannot_be_read_goes_where_it_is_explained(text, tmp_path):
    (tmp_path / "config.json").write_text(text)
    assert backend_for(tmp_path) == "torch"
    with pytest.raises(ModelUnusable, match=r"config\.json (cannot be read|holds no fields)"):
        load_weights(tmp_path, torch.float32, torch.device("cpu"))


class TestConfigsThatSayAll:
    """The library takes two seconds to import; where nothing is left to it, it is not asked."""

    @pytest.mark.parametrize("name", OWN)
    def test_the_same_decoder_as_by_the_librarys_config(self, name, tmp_path):
        OWN[name].save_pretrained(tmp_path)
        found, theirs = complete(read_config(tmp_path)), library_config(tmp_path)
        assert (found is not None) == (name in SAY_ALL)
        if found is None:
            return
        arch = architecture(theirs)
        assert architecture(found) == arch
        assert found.tie_word_embeddings == theirs.tie_word_embeddings
        assert torch.equal(rotary_table(found, arch).cos, rotary_table(theirs, arch).cos)

    def test_rotary_parameters_stand_where_older_writers_put_them(self):
        fields = read_config(POCKET)
        assert "rope_parameters" not in fields
        arch = architecture(library_config(POCKET))
        assert architecture(complete(fields)) == arch
        theirs = rotary_table(library_config(POCKET), arch)
        assert torch.equal(rotary_table(complete(fields), arch).sin, theirs.sin)

    @pytest.mark.parametrize("name", [*STATED, *FAMILIES["llama"].stated, "rope_theta"])
    def test_a_field_that_is_missing_or_of_another_kind_is_the_librarys(self, name):
        fields = read_config(POCKET)
        assert complete({key: value for key, value in fields.items() if key != name}) is None
        assert complete(fields | {name: None}) is None
        assert complete(fields | {name: [1]}) is None

    @pytest.mark.parametrize(
        "more",
        [
            {"rope_scaling": {"rope_type": "linear", "factor": 2.0}},
            {"rope_parameters": ROPES["llama3"]},
            {"rope_parameters": {"rope_type": "default", "rope_theta": None}},
            {"partial_rotary_factor": 0.5},
            {"head_dim": "32"},
            {"model_type": "phi3"},
        ],
    )
    def test_what_has_to_be_translated_is_the_librarys(self, more):
        assert complete(read_config(POCKET) | more) is None


class TestMadeUpFamily:
    """A new family is one value and one registry entry: it loads, computes and is exported."""

    @pytest.fixture
    def family(self, monkeypatch):
        found = Family(
            "made_up",
            stated={},
            names=TensorNames(
                embedding="words.weight",
                layers="blocks",
                attention_norm="norm_a.weight",
                maps={**SEPARATE, "out": ("mix.out",)},
            ),
            gguf="llama",
        )
        monkeypatch.setitem(FAMILIES, found.model_type, found)
        return found

    @staticmethod
    def renamed(name, family):
        for old, new in (
            ("model.embed_tokens.weight", family.names.embedding),
            ("model.layers.", "blocks."),
            ("input_layernorm.weight", family.names.attention_norm),
            ("self_attn.o_proj", "mix.out"),
        ):
            name = name.replace(old, new)
        return name

    def test_it_computes_what_the_renamed_model_does(self, family, tmp_path):
        reference = saved(OWN["llama 2"], tmp_path)
        edit_config(tmp_path, model_type="made_up")
        file = tmp_path / "model.safetensors"
        tensors = {self.renamed(n, family): tensor for n, tensor in load_file(file).items()}
        save_file(tensors, file, metadata={"format": "pt"})
        assert backend_for(tmp_path) == "torch"
        logits = ours(tmp_path).score([0], [chain(IDS[:45])])[0].logits
        assert near(logits, oracle(reference, IDS[:45]))

    def test_it_is_exported_under_the_name_that_llama_cpp_knows(self, monkeypatch, tmp_path):
        pytest.importorskip("gguf")
        monkeypatch.setitem(FAMILIES, "made_up", Family("made_up", stated={}, gguf="qwen3"))
        folder = shutil.copytree(POCKET, tmp_path / "pocket")
        edit_config(folder, model_type="made_up")
        write_vocabulary(open_source(folder), "default", tmp_path / "out.gguf")
        assert read_header(tmp_path / "out.gguf").architecture == "qwen3"
