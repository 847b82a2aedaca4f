"""Random GGUF files of many architectures, a few 100 kB each: running states, windows, experts."""

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from tests.engine.models.gguf.tiny import (
    BOOL,
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
LAYERS, WINDOW = 6, 48  # where layers have windows
EXPERTS, USED = 8, 2
Shapes = dict[str, tuple[int, ...]]
Numbers = dict[str, int | float | list[int] | list[bool]]
MAMBA2 = {
    "ssm.conv_kernel": 4, "ssm.inner_size": 2 * HIDDEN, "ssm.state_size": 16,
    "ssm.time_step_rank": 4, "ssm.group_count": 1,
}  # fmt: skip
STATES, VALUES, GROUPS = 32, 4, 2  # of gated delta layers: a head's width, heads of values, of keys
ROUTED: Numbers = {
    "expert_count": EXPERTS, "expert_used_count": USED, "expert_feed_forward_length": FORWARD,
}  # fmt: skip
AROUND = ("attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm")


def norms(layer: int, *names: str, width: int = HIDDEN) -> Shapes:
    return {f"blk.{layer}.{name}.weight": (width,) for name in names}


def vectors(layer: int, *names: str) -> Shapes:
    """Of which some have no ending."""
    return {f"blk.{layer}.{name}": (HIDDEN,) for name in names}


def attention(layer: int, width: int = WIDTH, gates: int = 1) -> Shapes:
    at = f"blk.{layer}.attn_"
    return {
        f"{at}q.weight": (gates * HEADS * width, HIDDEN),
        f"{at}k.weight": (SHARED * width, HIDDEN),
        f"{at}v.weight": (SHARED * width, HIDDEN),
        f"{at}output.weight": (HIDDEN, HEADS * width),
    }


def head_norms(layer: int, width: int = WIDTH) -> Shapes:
    return norms(layer, "attn_q_norm", "attn_k_norm", width=width)


def forward(layer: int, kind: str = "", many: tuple[int, ...] = ()) -> Shapes:
    """Gate, up and down; ``kind`` is in their names."""
    at = f"blk.{layer}.ffn_"
    return {
        f"{at}gate{kind}.weight": (*many, FORWARD, HIDDEN),
        f"{at}up{kind}.weight": (*many, FORWARD, HIDDEN),
        f"{at}down{kind}.weight": (*many, HIDDEN, FORWARD),
    }


def experts(layer: int) -> Shapes:
    router: Shapes = {f"blk.{layer}.ffn_gate_inp.weight": (EXPERTS, HIDDEN)}
    return router | forward(layer, "_exps", (EXPERTS,))


def shared_expert(layer: int) -> Shapes:
    return norms(layer, "ffn_gate_inp_shexp") | forward(layer, "_shexp")


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
    scales = ("w0", "a0", "v0", "k_k", "k_a", "r_k")
    maps = ("key", "value", "receptance", "output")
    mixed = f"blk.{layer}.channel_mix_"
    return (
        low
        | {f"{at}{name}.weight": (HIDDEN,) for name in scales}
        | {f"{at}{name}.weight": (HIDDEN, HIDDEN) for name in maps}
        | {f"{at}lerp_fused.weight": (6, 1, 1, HIDDEN)}
        | vectors(layer, "time_mix_ln.weight", "time_mix_ln.bias", "attn_norm.weight")
        | vectors(layer, "attn_norm.bias", "attn_norm_2.weight", "attn_norm_2.bias")
        | {f"{mixed}lerp_k.weight": (1, 1, HIDDEN), f"{mixed}key.weight": (FORWARD, HIDDEN)}
        | {f"{mixed}value.weight": (HIDDEN, FORWARD)}
    )


def qwen35(
    states: int = STATES, *, routed: bool = False, joined: bool = False
) -> tuple[Numbers, Shapes]:
    """Its metadata and weights, with gated delta heads of this width.

    ``routed``: to experts. ``joined``: as Qwen3-Next, which has one map to both gates.
    """
    shapes: Shapes = {}
    gates = ("ba",) if joined else ("beta", "alpha")
    for layer in range(4):
        shapes |= norms(layer, "attn_norm", "post_attention_norm")
        shapes |= experts(layer) | shared_expert(layer) if routed else forward(layer)
        if layer == 3:
            shapes |= attention(layer, gates=2) | head_norms(layer)
            continue
        shapes |= delta(layer, states)
        for gate in gates:
            rows = 2 * VALUES // len(gates)
            shapes[f"blk.{layer}.ssm_{gate}.weight"] = (rows, HIDDEN)
    numbers: Numbers = {
        "full_attention_interval": 4, "rope.dimension_count": 8, "rope.dimension_sections": [2, 1, 1, 0],
        "ssm.conv_kernel": 4, "ssm.inner_size": VALUES * states, "ssm.state_size": states,
        "ssm.time_step_rank": VALUES, "ssm.group_count": GROUPS,
    }  # fmt: skip
    if routed:
        numbers |= ROUTED | {"expert_shared_feed_forward_length": FORWARD}
    return numbers, shapes


def _lfm2() -> tuple[Numbers, Shapes]:
    shapes: Shapes = {"token_embd_norm.weight": (HIDDEN,)}
    for layer in range(4):
        shapes |= norms(layer, "attn_norm", "ffn_norm") | forward(layer)
        shapes |= attention(layer) | head_norms(layer) if layer == 2 else short_convolution(layer)
    return {"shortconv.l_cache": 3, "attention.head_count_kv": [0, 0, SHARED, 0]}, shapes


def _mamba2() -> tuple[Numbers, Shapes]:
    shapes: Shapes = {}
    for layer in range(3):
        shapes |= norms(layer, "attn_norm") | mamba2(layer)
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
        shapes |= norms(layer, "attn_norm") | vectors(layer, "ffn_norm")
        shapes |= forward(layer) | attention(layer) | mamba2(layer)
    return dict(MAMBA2), shapes


def _granitehybrid() -> tuple[Numbers, Shapes]:
    shapes: Shapes = {}
    for layer in range(4):
        shapes |= norms(layer, "attn_norm", "ffn_norm") | forward(layer)
        shapes |= attention(layer) if layer == 2 else mamba2(layer)
    return MAMBA2 | {"attention.head_count_kv": [0, 0, SHARED, 0]}, shapes


def _nemotron_h() -> tuple[Numbers, Shapes]:
    shapes: Shapes = {}
    for layer, kind in enumerate("mfmaf"):
        shapes |= norms(layer, "attn_norm")
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


def _gemma2() -> tuple[Numbers, Shapes]:
    shapes: Shapes = {}
    for layer in range(LAYERS):
        shapes |= norms(layer, *AROUND) | attention(layer) | forward(layer)
    return {"attention.sliding_window": WINDOW}, shapes


def _gemma3() -> tuple[Numbers, Shapes]:
    shapes: Shapes = {}
    for layer in range(LAYERS):
        shapes |= norms(layer, *AROUND) | attention(layer) | head_norms(layer) | forward(layer)
    return {"attention.sliding_window": WINDOW}, shapes


def _gemma4() -> tuple[Numbers, Shapes]:
    """Wider heads in the layer that sees all; the last two layers read the caches of others."""
    shapes: Shapes = {"rope_freqs.weight": (WIDTH,)}
    full = [layer in {3, 5} for layer in range(LAYERS)]
    for layer, sees_all in enumerate(full):
        width = 2 * WIDTH if sees_all else WIDTH
        shapes |= norms(layer, *AROUND) | attention(layer, width) | forward(layer)
        shapes |= head_norms(layer, width)
    numbers: Numbers = {
        "attention.sliding_window": WINDOW,
        "attention.sliding_window_pattern": [not sees_all for sees_all in full],
        "attention.key_length": 2 * WIDTH, "attention.value_length": 2 * WIDTH,
        "attention.key_length_swa": WIDTH, "attention.value_length_swa": WIDTH,
        "attention.shared_kv_layers": 2, "embedding_length_per_layer_input": 0,
        "rope.dimension_count": 2 * WIDTH, "rope.dimension_count_swa": WIDTH,
    }  # fmt: skip
    return numbers, shapes


def _gpt_oss() -> tuple[Numbers, Shapes]:
    shapes: Shapes = {}
    for layer in range(LAYERS):
        at = f"blk.{layer}."
        shapes |= norms(layer, "attn_norm", "post_attention_norm")
        shapes |= attention(layer) | experts(layer)
        shapes |= {f"{at}attn_sinks.weight": (HEADS,), f"{at}attn_output.bias": (HIDDEN,)}
        shapes |= {f"{at}attn_q.bias": (HEADS * WIDTH,)}
        shapes |= {f"{at}attn_{name}.bias": (SHARED * WIDTH,) for name in ("k", "v")}
        shapes |= {
            f"{at}ffn_gate_inp.bias": (EXPERTS,),
            f"{at}ffn_down_exps.bias": (EXPERTS, HIDDEN),
        }
        shapes |= {f"{at}ffn_{name}_exps.bias": (EXPERTS, FORWARD) for name in ("gate", "up")}
    return {"attention.sliding_window": WINDOW} | ROUTED, shapes


def _qwen3moe() -> tuple[Numbers, Shapes]:
    shapes: Shapes = {}
    for layer in range(LAYERS):
        shapes |= norms(layer, "attn_norm", "ffn_norm") | attention(layer)
        shapes |= head_norms(layer) | experts(layer)
    return dict(ROUTED), shapes


RUNNING: dict[str, Callable[[], tuple[Numbers, Shapes]]] = {
    "qwen35": qwen35,
    "qwen35moe": lambda: qwen35(routed=True),
    "qwen3next": lambda: qwen35(routed=True, joined=True),
    "lfm2": _lfm2,
    "nemotron_h": _nemotron_h,
    "granitehybrid": _granitehybrid,
    "falcon-h1": _falcon_h1,
    "mamba2": _mamba2,
    "rwkv7": _rwkv7,
}
# whose states after the last rows of a pass llama.cpp keeps
ROLL_BACK = frozenset({"qwen35", "qwen35moe", "lfm2", "nemotron_h"})
WINDOWED = {"gemma2": _gemma2, "gemma3": _gemma3, "gemma4": _gemma4, "gpt-oss": _gpt_oss}
KINDS = RUNNING | WINDOWED | {"qwen3moe": _qwen3moe}


def family_gguf(
    out: Path,
    kind: str,
    without: str = "",
    words: int = VOCAB,
    spoiled: str = "",
    made: tuple[Numbers, Shapes] | None = None,
    **numbers: int | float | list[int] | list[bool],
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
    names: Shapes = {"token_embd.weight": (VOCAB, HIDDEN)}
    if "token_embd_norm.weight" not in shapes or "output_norm.bias" in shapes:
        names["output_norm.weight"] = (HIDDEN,)
    if kind != "gemma2":  # whose head is its embedding
        names["output.weight"] = (VOCAB, HIDDEN)
    names |= shapes
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


def _pair(key: str, value: int | float | list[int] | list[bool]) -> bytes:
    if isinstance(value, list):
        return listed(key, BOOL if isinstance(value[0], bool) else I32, value)
    return pair(key, F32 if isinstance(value, float) else U32, value)


def _weights(names: Shapes) -> Iterator[np.ndarray]:
    """Norms are ones, decays below zero; maps keep the size of what they map, and logits reach 10."""
    chance = np.random.default_rng(0)
    tied = "output.weight" not in names
    for name, shape in names.items():
        drawn = chance.standard_normal(shape)
        if name.endswith(".ssm_a"):
            yield -np.exp(0.3 * drawn)
        elif tied and name == "output_norm.weight":
            yield 3 * np.ones(shape)
        elif "norm" in name or "_ln." in name or name == "rope_freqs.weight":
            yield np.ones(shape) if name.endswith("weight") or "." not in name[-6:] else 0 * drawn
        elif name == "output.weight":
            yield 3 * drawn / np.sqrt(HIDDEN)
        elif name == "token_embd.weight":  # a large one would be its own most likely successor
            yield drawn / np.sqrt(HIDDEN) if tied else drawn
        elif len(shape) == 1 or name.endswith("ssm_d"):
            yield 0.5 * drawn
        else:
            yield drawn / np.sqrt(shape[-1])
