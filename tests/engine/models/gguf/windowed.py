"""Random GGUF files of architectures with sliding windows and with experts, a few 100 kB each."""

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
LAYERS, HEADS, SHARED, WIDTH = 6, 2, 1, 32
WINDOW = 48
EXPERTS, USED = 8, 2
Shapes = dict[str, tuple[int, ...]]
Numbers = dict[str, int | float | list[int] | list[bool]]


def norms(layer: int, *names: str, width: int = HIDDEN) -> Shapes:
    return {f"blk.{layer}.{name}.weight": (width,) for name in names}


def attention(layer: int, width: int = WIDTH) -> Shapes:
    at = f"blk.{layer}.attn_"
    return {
        f"{at}q.weight": (HEADS * width, HIDDEN),
        f"{at}k.weight": (SHARED * width, HIDDEN),
        f"{at}v.weight": (SHARED * width, HIDDEN),
        f"{at}output.weight": (HIDDEN, HEADS * width),
    }


def head_norms(layer: int, width: int = WIDTH) -> Shapes:
    return norms(layer, "attn_q_norm", "attn_k_norm", width=width)


def forward(layer: int) -> Shapes:
    at = f"blk.{layer}.ffn_"
    return {
        f"{at}gate.weight": (FORWARD, HIDDEN),
        f"{at}up.weight": (FORWARD, HIDDEN),
        f"{at}down.weight": (HIDDEN, FORWARD),
    }


def experts(layer: int) -> Shapes:
    at = f"blk.{layer}.ffn_"
    return {
        f"{at}gate_inp.weight": (EXPERTS, HIDDEN),
        f"{at}gate_exps.weight": (EXPERTS, FORWARD, HIDDEN),
        f"{at}up_exps.weight": (EXPERTS, FORWARD, HIDDEN),
        f"{at}down_exps.weight": (EXPERTS, HIDDEN, FORWARD),
    }


ROUTED: Numbers = {
    "expert_count": EXPERTS, "expert_used_count": USED, "expert_feed_forward_length": FORWARD,
}  # fmt: skip
AROUND = ("attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm")


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


KINDS: dict[str, Callable[[], tuple[Numbers, Shapes]]] = {
    "gemma2": _gemma2,
    "gemma3": _gemma3,
    "gemma4": _gemma4,
    "gpt-oss": _gpt_oss,
    "qwen3moe": _qwen3moe,
}
WITH_WINDOWS = tuple(kind for kind in KINDS if kind != "qwen3moe")


def windowed_gguf(out: Path, kind: str, seed: int = 0, context: int = CONTEXT) -> Path:
    """A file of this architecture."""
    own, shapes = KINDS[kind]()
    given: Numbers = {
        "context_length": context, "embedding_length": HIDDEN, "block_count": LAYERS,
        "feed_forward_length": FORWARD, "vocab_size": VOCAB, "attention.head_count": HEADS,
        "attention.head_count_kv": SHARED, "attention.key_length": WIDTH,
        "attention.value_length": WIDTH, "rope.dimension_count": WIDTH,
        "attention.layer_norm_rms_epsilon": 1e-5,
    } | own  # fmt: skip
    edges: Shapes = {"token_embd.weight": (VOCAB, HIDDEN), "output_norm.weight": (HIDDEN,)}
    if kind != "gemma2":  # whose head is its embedding
        edges["output.weight"] = (VOCAB, HIDDEN)
    names = edges | shapes
    pairs = [
        pair("general.architecture", STRING, kind),
        *(_pair(f"{kind}.{key}", value) for key, value in given.items()),
        pair("tokenizer.ggml.model", STRING, "gpt2"),
        pair("tokenizer.ggml.pre", STRING, "gpt-2"),
        listed("tokenizer.ggml.tokens", STRING, [f"t{i}" for i in range(VOCAB)]),
        listed("tokenizer.ggml.token_type", I32, [1] * VOCAB),
        listed("tokenizer.ggml.merges", STRING, ["t 0"]),
        pair("tokenizer.ggml.bos_token_id", U32, 0),
        pair("tokenizer.ggml.eos_token_id", U32, 1),
    ]
    infos, weights = [], b""
    for (name, shape), numbers in zip(names.items(), _weights(names, seed), strict=True):
        infos.append(info(name, shape, 0, len(weights)))
        data = numbers.astype("<f4").tobytes()
        weights += data + bytes(-len(data) % 32)
    return write(out, assembled(pairs, infos, weights))


def _pair(key: str, value: int | float | list[int] | list[bool]) -> bytes:
    if isinstance(value, list):
        return listed(key, BOOL if isinstance(value[0], bool) else I32, value)
    return pair(key, F32 if isinstance(value, float) else U32, value)


def _weights(names: Shapes, seed: int) -> Iterator[np.ndarray]:
    """Norms are ones; maps keep the size of what they map, and logits reach 10."""
    chance = np.random.default_rng(seed)
    tied = "output.weight" not in names
    for name, shape in names.items():
        drawn = chance.standard_normal(shape)
        if tied and name == "output_norm.weight":
            yield 3 * np.ones(shape)
        elif "norm" in name or name == "rope_freqs.weight":
            yield np.ones(shape)
        elif name == "output.weight":
            yield 3 * drawn / np.sqrt(HIDDEN)
        elif name == "token_embd.weight":  # a large one would be its own most likely successor
            yield drawn / np.sqrt(HIDDEN) if tied else drawn
        else:
            yield drawn / np.sqrt(shape[-1])
