"""Random checkpoints of every family, and the transformers library as the oracle of what they compute."""

import json

import torch
import transformers
from safetensors.torch import load_file, save_file

from engine.decoder.weights import load_weights
from engine.models.own.target import TorchTarget
from engine.request import ModelSpec
from engine.speculation.tree import DraftTree

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
OWN = {
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

# Families that the library runs, by what they take.

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
    "roberta": transformers.RobertaConfig(  # its positions begin after the number of its padding token
        vocab_size=61, hidden_size=48, num_hidden_layers=3, num_attention_heads=4, is_decoder=True,
        intermediate_size=64, max_position_embeddings=256,
    ),
}  # fmt: skip
MAMBA = {"mamba_n_heads": 6, "mamba_d_head": 16, "mamba_d_state": 16, "mamba_chunk_size": 8}
DELTA = {
    "linear_num_value_heads": 4, "linear_num_key_heads": 2, "linear_key_head_dim": 16,
    "linear_value_head_dim": 16, "head_dim": 16, "layer_types": ["linear_attention"] * 3 + ["full_attention"],
}  # fmt: skip
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
SCAN = {"hidden_size": 48, "num_hidden_layers": 3, "vocab_size": 61, "state_size": 8}
RECURRENT = {  # whose running states are kept row by row
    "bamba": transformers.BambaConfig(  # its forward counts every pass from 0 unless it gets positions
        **SMALL, **MAMBA, attn_layer_indices=[1]
    ),
    "falcon_h1": transformers.FalconH1Config(
        **SMALL, mamba_d_ssm=64, mamba_n_heads=4, mamba_d_head=16, mamba_n_groups=1,
        mamba_d_state=16, mamba_chunk_size=8,
    ),
    "jamba": transformers.JambaConfig(
        **SMALL, num_experts=4, num_experts_per_tok=2, attn_layer_period=2, attn_layer_offset=1,
        mamba_d_state=8,
    ),
    "lfm2": transformers.Lfm2Config(
        **SMALL, layer_types=["conv", "full_attention"] * 2, block_auto_adjust_ff_dim=False
    ),
    "mamba": transformers.MambaConfig(**SCAN),
    "mamba2": transformers.Mamba2Config(
        **SCAN, num_heads=6, head_dim=16, n_groups=2, chunk_size=8, expand=2
    ),
    "qwen3_5_text": transformers.Qwen3_5TextConfig(**SMALL, **DELTA),
}  # fmt: skip
HYBRIDS = RECURRENT | {  # more of them, for laws that take little time
    "falcon_mamba": transformers.FalconMambaConfig(**SCAN),
    "granitemoehybrid": transformers.GraniteMoeHybridConfig(
        **SMALL, **MAMBA, layer_types=["linear_attention", "full_attention"] * 2,
        num_local_experts=4, num_experts_per_tok=2, shared_intermediate_size=32,
    ),
    "nemotron_h": transformers.NemotronHConfig(
        **{name: value for name, value in SMALL.items() if name != "num_hidden_layers"},
        hybrid_override_pattern="M*-M", mamba_num_heads=6, mamba_head_dim=16, ssm_state_size=16,
        n_groups=2, chunk_size=8, head_dim=16,
    ),
    "qwen3_next": transformers.Qwen3NextConfig(
        **SMALL, **DELTA, **EXPERTS, shared_expert_intermediate_size=32
    ),
    "zamba2": transformers.Zamba2Config(
        **SMALL, layer_types=["linear_attention", "hybrid"] * 2, mamba_d_state=8, mamba_headdim=16,
        n_mamba_heads=6, mamba_ngroups=1, hybrid_layer_ids=[1, 3], chunk_size=8, num_mem_blocks=1,
    ),
}  # fmt: skip
STUCK = {  # whose state is in a cache of its own kind
    "minimax": transformers.MiniMaxConfig(
        **SMALL, num_local_experts=4, num_experts_per_tok=2, head_dim=16, block_size=8,
        layer_types=["linear_attention", "full_attention"] * 2,
    ),
}  # fmt: skip
HF = TREES | CHAINS | RECURRENT | STUCK
TOLERANCE = 1e-4
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
    """Our own decoder over a folder."""
    return TorchTarget(load_weights(folder, torch.float32, torch.device("cpu"), context))


def spec(folder, **changes):
    """How the library is asked to run a folder."""
    return ModelSpec("tiny", str(folder), backend="hf", **changes)


@torch.no_grad()
def oracle(reference, ids):
    return reference(torch.tensor([ids])).logits[0]


def near(ours, theirs, tolerance=TOLERANCE):
    assert theirs.std() > 0.1  # else a wrong mask would not show
    return bool((ours - theirs).abs().max() < tolerance)


def edit_config(folder, **changes):
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


def edit_weights(folder, change):
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def write_tokenizer(folder):
    """Every token is spelled by its number."""
    vocabulary = {"model": {"vocab": {str(i): i for i in range(SMALL["vocab_size"])}}}
    (folder / "tokenizer.json").write_text(json.dumps(vocabulary))
