"""Random GGUF files of architectures with running states: hybrid ones and recurrent ones, 100 kB each."""

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from tests.engine.models.gguf.tiny import (
    F32,
    I32,
    STRING,
    U32,
    assembled,
    info,
    listed,
    pair,
    write,
)

VOCAB, HIDDEN, FORWARD, CONTEXT = 96, 64, 96, 1024
HEADS, SHARED, WIDTH = 2, 1, 32  # of attention
Shapes = dict[str, tuple[int, ...]]
Numbers = dict[str, int | float | list[int]]

MAMBA2 = {
    "ssm.conv_kernel": 4, "ssm.inner_size": 2 * HIDDEN, "ssm.state_size": 16,
    "ssm.time_step_rank": 4, "ssm.group_count": 1,
}  # fmt: skip
STATES, VALUES, GROUPS = 32, 4, 2  # of gated delta layers: a head's width, heads of values, of keys


def forward(layer: int) -> Shapes:
    at = f"blk.{layer}.ffn_"
    return {
        f"{at}gate.weight": (FORWARD, HIDDEN),
        f"{at}up.weight": (FORWARD, HIDDEN),
        f"{at}down.weight": (HIDDEN, FORWARD),
    }


def norms(layer: int, *names: str) -> Shapes:
    return {f"blk.{layer}.{name}": (HIDDEN,) for name in names}


def attention(layer: int, gates: int = 1) -> Shapes:
    at = f"blk.{layer}.attn_"
    return {
        f"{at}q.weight": (gates * HEADS * WIDTH, HIDDEN),
        f"{at}k.weight": (SHARED * WIDTH, HIDDEN),
        f"{at}v.weight": (SHARED * WIDTH, HIDDEN),
        f"{at}output.weight": (HIDDEN, HEADS * WIDTH),
    }


def head_norms(layer: int) -> Shapes:
    return {f"blk.{layer}.attn_{name}_norm.weight": (WIDTH,) for name in ("q", "k")}


def mamba2(layer: int) -> Shapes:
    at, inner, states, heads = f"blk.{layer}.ssm_", 2 * HIDDEN, 16, 4
    return {
        f"{at}in.weight": (2 * inner + 2 * states + heads, HIDDEN),
        f"{at}conv1d.weight": (inner + 2 * states, 4),
        f"{at}conv1d.bias": (inner + 2 * states,),
        f"{at}dt.bias": (heads,),
        f"{at}a": (heads, 1),
        f"{at}d": (heads, 1),
        f"{at}norm.weight": (1, inner),
        f"{at}out.weight": (HIDDEN, inner),
    }


def delta(layer: int, states: int) -> Shapes:
    at, inner = f"blk.{layer}.", VALUES * states
    mixed = 2 * GROUPS * states + inner
    return {
        f"{at}attn_qkv.weight": (mixed, HIDDEN),
        f"{at}attn_gate.weight": (inner, HIDDEN),
        f"{at}ssm_conv1d.weight": (mixed, 4),
        f"{at}ssm_dt.bias": (VALUES,),
        f"{at}ssm_a": (VALUES,),
        f"{at}ssm_beta.weight": (VALUES, HIDDEN),
        f"{at}ssm_alpha.weight": (VALUES, HIDDEN),
        f"{at}ssm_norm.weight": (states,),
        f"{at}ssm_out.weight": (HIDDEN, inner),
    }


def short_convolution(layer: int) -> Shapes:
    at = f"blk.{layer}.shortconv."
    return {
        f"{at}conv.weight": (HIDDEN, 3),
        f"{at}in_proj.weight": (3 * HIDDEN, HIDDEN),
        f"{at}out_proj.weight": (HIDDEN, HIDDEN),
    }


def time_mix(layer: int) -> Shapes:
    at, rank = f"blk.{layer}.time_mix_", 16
    low = {
        f"{at}{name}{part}.weight": shape
        for name in "wavg"
        for part, shape in (("1", (rank, HIDDEN)), ("2", (HIDDEN, rank)))
    }
    vectors = ("w0", "a0", "v0", "k_k", "k_a", "r_k")
    maps = ("key", "value", "receptance", "output")
    mixed = f"blk.{layer}.channel_mix_"
    return (
        low
        | {f"{at}{name}.weight": (HIDDEN,) for name in vectors}
        | {f"{at}{name}.weight": (HIDDEN, HIDDEN) for name in maps}
        | {f"{at}lerp_fused.weight": (6, 1, 1, HIDDEN)}
        | norms(layer, "time_mix_ln.weight", "time_mix_ln.bias", "attn_norm.weight")
        | norms(layer, "attn_norm.bias", "attn_norm_2.weight", "attn_norm_2.bias")
        | {f"{mixed}lerp_k.weight": (1, 1, HIDDEN), f"{mixed}key.weight": (FORWARD, HIDDEN)}
        | {f"{mixed}value.weight": (HIDDEN, FORWARD)}
    )


def qwen35(states: int = STATES) -> tuple[Numbers, Shapes]:
    """Its metadata and weights, with gated delta heads of this width."""
    shapes: Shapes = {}
    for layer in range(4):
        shapes |= norms(layer, "attn_norm.weight", "post_attention_norm.weight") | forward(layer)
        shapes |= (
            delta(layer, states) if layer < 3 else attention(layer, gates=2) | head_norms(layer)
        )
    numbers: Numbers = {
        "full_attention_interval": 4, "rope.dimension_count": 8, "rope.dimension_sections": [2, 1, 1, 0],
        "ssm.conv_kernel": 4, "ssm.inner_size": VALUES * states, "ssm.state_size": states,
        "ssm.time_step_rank": VALUES, "ssm.group_count": GROUPS,
    }  # fmt: skip
    return numbers, shapes


def _lfm2() -> tuple[Numbers, Shapes]:
    shapes: Shapes = {"token_embd_norm.weight": (HIDDEN,)}
    for layer in range(4):
        shapes |= norms(layer, "attn_norm.weight", "ffn_norm.weight") | forward(layer)
        shapes |= attention(layer) | head_norms(layer) if layer == 2 else short_convolution(layer)
    return {"shortconv.l_cache": 3, "attention.head_count_kv": [0, 0, SHARED, 0]}, shapes


def _mamba2() -> tuple[Numbers, Shapes]:
    shapes: Shapes = {}
    for layer in range(3):
        shapes |= norms(layer, "attn_norm.weight") | mamba2(layer)
    return MAMBA2 | {"attention.head_count": 0}, shapes


def _rwkv7() -> tuple[Numbers, Shapes]:
    shapes = {f"token_embd_norm.{part}": (HIDDEN,) for part in ("weight", "bias")}
    shapes |= {"output_norm.bias": (HIDDEN,)}
    for layer in range(3):
        shapes |= time_mix(layer)
    ranks = ("decay", "iclr", "value_residual_mix", "gate")
    numbers = {f"attention.{rank}_lora_rank": 16 for rank in ranks}
    return numbers | {"wkv.head_size": 64, "attention.head_count": 0}, shapes


def _falcon_h1() -> tuple[Numbers, Shapes]:
    shapes: Shapes = {}
    for layer in range(3):
        shapes |= norms(layer, "attn_norm.weight", "ffn_norm") | forward(layer)
        shapes |= attention(layer) | mamba2(layer)
    return dict(MAMBA2), shapes


def _granitehybrid() -> tuple[Numbers, Shapes]:
    shapes: Shapes = {}
    for layer in range(4):
        shapes |= norms(layer, "attn_norm.weight", "ffn_norm.weight") | forward(layer)
        shapes |= attention(layer) if layer == 2 else mamba2(layer)
    return MAMBA2 | {"attention.head_count_kv": [0, 0, SHARED, 0]}, shapes


def _nemotron_h() -> tuple[Numbers, Shapes]:
    shapes: Shapes = {}
    for layer, kind in enumerate("mfmaf"):
        shapes |= norms(layer, "attn_norm.weight")
        if kind == "f":
            at = f"blk.{layer}.ffn_"
            shapes |= {f"{at}up.weight": (FORWARD, HIDDEN), f"{at}down.weight": (HIDDEN, FORWARD)}
        else:
            shapes |= mamba2(layer) if kind == "m" else attention(layer)
    numbers = MAMBA2 | {
        "attention.head_count_kv": [0, 0, 0, SHARED, 0],
        "feed_forward_length": [0, FORWARD, 0, 0, FORWARD],
        "attention.layer_norm_epsilon": 1e-5,
    }
    return numbers, shapes


KINDS: dict[str, Callable[[], tuple[Numbers, Shapes]]] = {
    "qwen35": qwen35,
    "lfm2": _lfm2,
    "nemotron_h": _nemotron_h,
    "granitehybrid": _granitehybrid,
    "falcon-h1": _falcon_h1,
    "mamba2": _mamba2,
    "rwkv7": _rwkv7,
}
ROLL_BACK = frozenset({"qwen35", "lfm2", "nemotron_h"})  # llama.cpp keeps their last rows' states


def recurrent_gguf(
    out: Path,
    kind: str,
    without: str = "",
    words: int = VOCAB,
    spoiled: str = "",
    made: tuple[Numbers, Shapes] | None = None,
    **numbers: int | float | list[int],
) -> Path:
    """A file of this architecture; ``without`` a tensor, or with other ``numbers`` (dots as in keys).

    ``words`` are in its list of tokens; its embedding always has ``VOCAB``. The tensor
    ``spoiled`` holds no numbers; ``made`` are metadata and weights of other sizes.
    """
    own, shapes = made or KINDS[kind]()
    layers = 1 + max(int(name.split(".")[1]) for name in shapes if name.startswith("blk."))
    given: Numbers = {
        "context_length": CONTEXT, "embedding_length": HIDDEN, "block_count": layers,
        "feed_forward_length": FORWARD, "vocab_size": VOCAB, "attention.head_count": HEADS,
        "attention.head_count_kv": SHARED, "attention.key_length": WIDTH,
        "attention.value_length": WIDTH, "rope.dimension_count": WIDTH,
        "attention.layer_norm_rms_epsilon": 1e-5, "attention.layer_norm_epsilon": 1e-5,
    } | own | numbers  # fmt: skip
    names = {"token_embd.weight": (VOCAB, HIDDEN), "output.weight": (VOCAB, HIDDEN)} | shapes
    if "token_embd_norm.weight" not in names or "output_norm.bias" in names:
        names["output_norm.weight"] = (HIDDEN,)
    names.pop(without, None)
    pairs = [
        pair("general.architecture", STRING, kind),
        *(_pair(f"{kind}.{key}", value) for key, value in given.items()),
        pair("tokenizer.ggml.model", STRING, "gpt2"),
        pair("tokenizer.ggml.pre", STRING, "gpt-2"),
        listed("tokenizer.ggml.tokens", STRING, [f"t{i}" for i in range(words)]),
        listed("tokenizer.ggml.token_type", I32, [1] * words),
        listed("tokenizer.ggml.merges", STRING, ["t 0"]),
        pair("tokenizer.ggml.bos_token_id", U32, 0),
        pair("tokenizer.ggml.eos_token_id", U32, 1),
    ]
    infos, weights = [], b""
    for (name, shape), numbers_of in zip(names.items(), _weights(names), strict=True):
        infos.append(info(name, shape, 0, len(weights)))
        damage = np.nan if name == spoiled else 0
        data = (numbers_of + damage).astype("<f4").tobytes()
        weights += data + bytes(-len(data) % 32)
    return write(out, assembled(pairs, infos, weights))


def _pair(key: str, value: int | float | list[int]) -> bytes:
    if isinstance(value, list):
        return listed(key, I32, value)
    return pair(key, F32 if isinstance(value, float) else U32, value)


def _weights(names: Shapes) -> Iterator[np.ndarray]:
    """Norms are ones, decays below zero; maps keep the size of what they map."""
    chance = np.random.default_rng(0)
    for name, shape in names.items():
        drawn = chance.standard_normal(shape)
        if name.endswith(".ssm_a"):
            yield -np.exp(0.3 * drawn)
        elif "norm" in name or "_ln." in name:
            yield np.ones(shape) if name.endswith("weight") or "." not in name[-6:] else 0 * drawn
        elif name == "output.weight":
            yield 3 * drawn / np.sqrt(HIDDEN)
        elif len(shape) == 1 or name.endswith("ssm_d"):
            yield 0.5 * drawn
        else:
            yield drawn if name == "token_embd.weight" else drawn / np.sqrt(shape[-1])
