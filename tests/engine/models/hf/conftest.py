"""Small models of families that the transformers library runs, by what they take."""

import pytest
import transformers

from engine.decoder.config import backend_for
from engine.models.hf.target import load
from engine.request import ModelSpec
from tests.engine.decoder.test_families import SMALL, saved

TOLERANCE = 1e-4
WINDOWED = {
    "head_dim": 16,
    "sliding_window": 8,
    "layer_types": ["sliding_attention", "full_attention"] * 2,
}
MHA = {name: value for name, value in SMALL.items() if name != "num_key_value_heads"}
GPT = {"vocab_size": 61, "bos_token_id": 1, "eos_token_id": 2}
TREES = {
    "gemma3": transformers.Gemma3TextConfig(**SMALL, **WINDOWED),
    "gpt_neox": transformers.GPTNeoXConfig(**MHA),
    "granite": transformers.GraniteConfig(
        **SMALL, embedding_multiplier=2.0, logits_scaling=0.5, residual_multiplier=0.7,
        attention_multiplier=0.3,
    ),
    "stablelm": transformers.StableLmConfig(**SMALL, partial_rotary_factor=0.5, use_qkv_bias=True),
    "gpt2": transformers.GPT2Config(n_embd=48, n_layer=3, n_head=4, n_positions=256, **GPT),
    "qwen2_moe": transformers.Qwen2MoeConfig(
        **SMALL, use_sliding_window=True, sliding_window=8, max_window_layers=2, num_experts=4,
        num_experts_per_tok=2, moe_intermediate_size=32, shared_expert_intermediate_size=32,
    ),
    "olmo3": transformers.Olmo3Config(**SMALL, sliding_window=8),
}  # fmt: skip
CHAINS = {
    "bloom": transformers.BloomConfig(hidden_size=48, n_layer=3, n_head=4, vocab_size=61),
    "gpt_neo": transformers.GPTNeoConfig(
        hidden_size=48, num_layers=2, num_heads=4, attention_types=[[["global", "local"], 1]],
        window_size=8, **GPT,
    ),
}  # fmt: skip
RECURRENT = {
    "bamba": transformers.BambaConfig(  # its forward counts every pass from 0 unless it gets positions
        **SMALL, attn_layer_indices=[1], mamba_n_heads=6, mamba_d_head=16, mamba_d_state=16,
        mamba_chunk_size=8,
    ),
    "falcon_h1": transformers.FalconH1Config(
        **SMALL, mamba_d_ssm=64, mamba_n_heads=4, mamba_d_head=16, mamba_n_groups=1,
        mamba_d_state=16, mamba_chunk_size=8,
    ),
    "mamba": transformers.MambaConfig(hidden_size=48, num_hidden_layers=3, vocab_size=61, state_size=8),
}  # fmt: skip
ALL = TREES | CHAINS | RECURRENT


def spec(folder, **changes):
    return ModelSpec("tiny", str(folder), backend="hf", **changes)


def near(ours, theirs):
    assert theirs.std() > 0.05  # else a wrong mask would not show
    return bool((ours - theirs).abs().max() < TOLERANCE * max(1.0, theirs.abs().max()))


@pytest.fixture(scope="module")
def loaded(tmp_path_factory):
    """Family -> (our target, transformers' model), each made once."""
    made = {}

    def get(family):
        if family not in made:
            folder = tmp_path_factory.mktemp(family)
            reference = saved(ALL[family], folder)
            assert backend_for(folder) == "hf"
            made[family] = load(spec(folder)), reference
        target, reference = made[family]
        for slot in range(3):
            target.crop(slot, 0)
        return target, reference

    return get
