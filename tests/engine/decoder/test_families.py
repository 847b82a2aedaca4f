"""Every family of the own decoder against transformers: the oracle of what a checkpoint computes."""

import json
import shutil
from pathlib import Path

import pytest
import torch
import transformers
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
from engine.decoder.families import FAMILIES as OWN
from engine.decoder.family import SEPARATE, Family, TensorNames
from engine.decoder.weights import load_weights
from engine.errors import ModelUnusable
from engine.models.gguf.export import open_source, write_vocabulary
from engine.models.gguf.header import read_header
from engine.models.own.target import TorchTarget, load_target
from engine.speculation.tree import DraftTree, chain, single

TOLERANCE = 1e-4
SMALL = {
    "hidden_size": 48, "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2,
    "intermediate_size": 64, "vocab_size": 61, "max_position_embeddings": 256,
    "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0,
}  # fmt: skip
ROPES = {
    "llama3": {
        "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64, "rope_theta": 500000.0,
    },
    "linear": {"rope_type": "linear", "factor": 4.0, "rope_theta": 10000.0},
    "dynamic": {"rope_type": "dynamic", "factor": 4.0, "rope_theta": 10000.0},
    "yarn": {
        "rope_type": "yarn", "factor": 4.0, "rope_theta": 10000.0,
        "original_max_position_embeddings": 64,
    },
}  # fmt: skip
LONGROPE = {
    "rope_type": "longrope", "rope_theta": 10000.0, "partial_rotary_factor": 0.5,
    "short_factor": [1.0, 1.1, 1.2], "long_factor": [2.0, 3.0, 5.0],
}  # fmt: skip
PHI4_MINI = transformers.Phi3Config(
    **SMALL, rope_parameters=LONGROPE, original_max_position_embeddings=64, tie_word_embeddings=True
)
FAMILIES = {
    "llama 2": transformers.LlamaConfig(**{**SMALL, "num_key_value_heads": 4}),
    "llama 3.1": transformers.LlamaConfig(**SMALL, rope_parameters=ROPES["llama3"]),
    "llama 3.2": transformers.LlamaConfig(
        **SMALL, rope_parameters=ROPES["llama3"], tie_word_embeddings=True, head_dim=16
    ),
    "llama linear": transformers.LlamaConfig(**SMALL, rope_parameters=ROPES["linear"]),
    "llama dynamic": transformers.LlamaConfig(**SMALL, rope_parameters=ROPES["dynamic"]),
    "llama biased": transformers.LlamaConfig(**SMALL, attention_bias=True, mlp_bias=True),
    "mistral": transformers.MistralConfig(**SMALL, sliding_window=None, head_dim=16),
    "mistral window": transformers.MistralConfig(**SMALL, sliding_window=48),
    "qwen2": transformers.Qwen2Config(**SMALL, tie_word_embeddings=True),
    "qwen2.5 window": transformers.Qwen2Config(
        **SMALL, use_sliding_window=True, sliding_window=48, max_window_layers=2
    ),
    "qwen2.5 yarn": transformers.Qwen2Config(**SMALL, rope_parameters=ROPES["yarn"]),
    "qwen3": transformers.Qwen3Config(**SMALL, head_dim=16),
    "smollm2": transformers.LlamaConfig(**SMALL, tie_word_embeddings=True),
    "smollm3": transformers.SmolLM3Config(**SMALL, no_rope_layer_interval=2),
    "phi3": transformers.Phi3Config(**SMALL, sliding_window=48),
    "phi4": transformers.Phi3Config(**SMALL),
    "phi4 mini": PHI4_MINI,
    "olmo2": transformers.Olmo2Config(**SMALL),
}
SAY_ALL = {
    "llama 2", "llama biased", "mistral", "mistral window", "qwen2", "qwen2.5 window", "qwen3",
    "smollm2",
}  # fmt: skip
POCKET = Path(__file__).parents[3] / "engine" / "bundled" / "pocket"
IDS = torch.randint(3, 61, (100,), generator=torch.Generator().manual_seed(1)).tolist()
TREE = DraftTree((IDS[20], 5, 10, 11, 20, 21), (-1, 0, 0, 1, 1, 2))


def saved(config, folder):
    """A random checkpoint in ``folder``; norms and biases are no ones and zeros, which hide faults."""
    transformers.set_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(config).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" in name or "bias" in name:
                parameter.uniform_(0.5, 1.5)
            else:
                parameter.mul_(4)  # far enough from zero for attention to matter
    model.save_pretrained(folder)
    return model


def ours(folder, context=None):
    return TorchTarget(load_weights(folder, torch.float32, torch.device("cpu"), context))


@pytest.fixture(params=FAMILIES, scope="module")
def pair(request, tmp_path_factory):
    """(our target, transformers' model) over one random checkpoint."""
    folder = tmp_path_factory.mktemp("model")
    reference = saved(FAMILIES[request.param], folder)
    assert backend_for(folder) == "torch"
    return ours(folder), reference


@torch.no_grad()
def oracle(reference, ids):
    return reference(torch.tensor([ids])).logits[0]


def path_tokens(tree, node):
    found = []
    while node >= 0:
        found.append(tree.tokens[node])
        node = tree.parents[node]
    return found[::-1]


def distance(ours, theirs):
    assert theirs.std() > 0.1  # else a wrong mask would not show
    return (ours - theirs).abs().max()


def test_all_own_families_are_tested():
    assert {config.model_type for config in FAMILIES.values()} == set(OWN)


def test_a_prompt_at_once_and_steps_after_a_fed_one_equal_transformers(pair):
    target, reference = pair
    wanted = oracle(reference, IDS[:45])
    target.crop(0, 0)
    assert distance(target.score([0], [chain(IDS[:45])])[0].logits, wanted) < TOLERANCE
    target.crop(0, 0)
    target.feed(0, IDS[:13])
    target.feed(0, IDS[13:36])
    for at in range(36, 45):
        logits = target.score([0], [single(IDS[at])])[0].logits
        assert distance(logits[0], wanted[at]) < TOLERANCE
        target.commit(0, [0])


def test_every_node_of_a_tree_equals_its_path_alone(pair):
    target, reference = pair
    target.crop(0, 0)
    target.feed(0, IDS[:20])
    logits = target.score([0], [TREE])[0].logits
    for node in range(len(TREE)):
        alone = oracle(reference, IDS[:20] + path_tokens(TREE, node))[-1]
        assert distance(logits[node], alone) < TOLERANCE


@pytest.mark.parametrize("path", [(0,), (0, 2, 5), (0, 1, 4), (0, 1)])
def test_a_kept_path_equals_the_plain_sequence(pair, path):
    target, reference = pair
    target.crop(0, 0)
    target.feed(0, IDS[:20])
    target.score([0], [TREE])
    target.commit(0, path)
    logits = target.score([0], [single(7)])[0].logits
    alone = oracle(reference, IDS[:20] + path_tokens(TREE, path[-1]) + [7])[-1]
    assert distance(logits[0], alone) < TOLERANCE


def test_bfloat16_runs_and_stays_near_float32(pair, tmp_path):
    target, reference = pair
    reference.save_pretrained(tmp_path)
    half = load_target(tmp_path, "bfloat16", "cpu")
    target.crop(0, 0)
    full = target.score([0], [chain(IDS[:40])])[0].logits
    rounded = half.score([0], [chain(IDS[:40])])[0].logits.float()
    assert (full - rounded).abs().max() < 0.05 * full.abs().max() + 0.05


@pytest.mark.gpu
def test_cuda_equals_the_processor(pair, tmp_path):
    target, reference = pair
    reference.save_pretrained(tmp_path)
    device = load_target(tmp_path, "float32", "cuda")
    for held in (target, device):
        held.crop(0, 0)
        held.feed(0, IDS[:20])
    ours, theirs = (held.score([0], [TREE])[0].logits.cpu() for held in (target, device))
    assert (ours - theirs).abs().max() < 1e-3


@pytest.mark.parametrize("family", ["mistral window", "qwen2.5 window", "phi3"])
def test_the_context_ends_where_the_sliding_window_does(family, tmp_path):
    """And no earlier: the last row of that context still sees everything."""
    reference = saved(FAMILIES[family], tmp_path)
    target = ours(tmp_path)
    assert target.context == 48
    logits = target.score([0], [chain(IDS[:48])])[0].logits
    assert distance(logits, oracle(reference, IDS[:48])) < TOLERANCE


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
    assert distance(logits, oracle(reference, ids)[fed:]) < TOLERANCE
    other = ours(tmp_path, context=200 if asked is None else None)
    short, long = (t.score([1], [chain(IDS[:30])])[0].logits for t in (target, other))
    assert (short - long).abs().max() > 0.01


def test_the_context_asked_for_and_a_limit_bound_the_table(tmp_path):
    saved(FAMILIES["llama 2"], tmp_path)
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

    @pytest.mark.parametrize("name", FAMILIES)
    def test_the_same_decoder_as_by_the_librarys_config(self, name, tmp_path):
        FAMILIES[name].save_pretrained(tmp_path)
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

    @pytest.mark.parametrize("name", [*STATED, *OWN["llama"].stated, "rope_theta"])
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
        monkeypatch.setitem(OWN, found.model_type, found)
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
        reference = saved(FAMILIES["llama 2"], tmp_path)
        edit_config(tmp_path, model_type="made_up")
        file = tmp_path / "model.safetensors"
        tensors = {self.renamed(n, family): tensor for n, tensor in load_file(file).items()}
        save_file(tensors, file, metadata={"format": "pt"})
        assert backend_for(tmp_path) == "torch"
        logits = ours(tmp_path).score([0], [chain(IDS[:45])])[0].logits
        assert distance(logits, oracle(reference, IDS[:45])) < TOLERANCE

    def test_it_is_exported_under_the_name_that_llama_cpp_knows(self, monkeypatch, tmp_path):
        pytest.importorskip("gguf")
        monkeypatch.setitem(OWN, "made_up", Family("made_up", stated={}, gguf="qwen3"))
        folder = shutil.copytree(POCKET, tmp_path / "pocket")
        edit_config(folder, model_type="made_up")
        write_vocabulary(open_source(folder), "default", tmp_path / "out.gguf")
        assert read_header(tmp_path / "out.gguf").architecture == "qwen3"


def edit_config(folder, **changes):
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))
