"""Contradictions in a GGUF header at which llama.cpp would crash or silently continue."""

import math
import re
from collections.abc import Mapping, Sequence

from engine.errors import ModelUnusable
from engine.models.gguf.header import GgufHeader, GgufTensor
from engine.models.gguf.kinds import check_kind
from engine.models.gguf.state_shape import number

MOST_LAYERS = 512  # llama.cpp aborts the process above it
MOST_CONTEXT = 1 << 31
TOKENS = "tokenizer.ggml.tokens"
PER_TOKEN = ("tokenizer.ggml.scores", "tokenizer.ggml.token_type")
STATE_SIZES = (  # that llama.cpp divides by, or has no state without
    "full_attention_interval", "ssm.conv_kernel", "ssm.inner_size", "ssm.state_size",
    "ssm.time_step_rank", "wkv.head_size", "shortconv.l_cache", "kda.head_dim",
)  # fmt: skip
RWKV7_HEADS = ".time_mix_k_k.weight"  # only RWKV's seventh kind scales its keys so
RWKV7_STEP = 64  # numbers that llama.cpp's kernel for these heads reads and writes at once
END_TOKENS = ("tokenizer.ggml.bos_token_id", "tokenizer.ggml.eos_token_id")


def check_consistent(parts: Sequence[GgufHeader]) -> None:
    """Check the headers of one model, its first part first; raises ModelUnusable."""
    first = parts[0]
    tensors = {tensor.name: tensor for part in parts for tensor in part.tensors}
    check_kind(first, tensors)
    try:
        _check_numbers(first)
        _check_attention(first, tensors)
        _check_rotation(first)
        _check_windows(first)
        _check_experts(first)
        _check_states(first, tensors)
        _check_layers(first, tensors)
        _check_vocabulary(first, tensors)
    except _Contradiction as error:
        raise ModelUnusable(
            f"{first.path} contradicts itself: {error}; get the file again"
        ) from error
    _check_heads(first, tensors)


class _Contradiction(Exception):
    """Two facts of one header cannot both hold."""


def _check_numbers(header: GgufHeader) -> None:
    if not re.fullmatch(r"[a-z0-9_.-]+", header.architecture):
        raise _Contradiction(f"general.architecture is {header.architecture!r}")
    for key, most in (
        ("block_count", MOST_LAYERS),
        ("context_length", MOST_CONTEXT),
        ("embedding_length", MOST_CONTEXT),
    ):
        _check_whole(header, key, most, required=True)
    for key in ("attention.layer_norm_rms_epsilon", "attention.layer_norm_epsilon"):
        epsilon = header.of(key)
        if isinstance(epsilon, float) and not (math.isfinite(epsilon) and epsilon >= 0):
            raise _Contradiction(f"{key} is {epsilon}")


def _check_attention(header: GgufHeader, tensors: Mapping[str, GgufTensor]) -> None:
    """Recurrent models have no heads; hybrid ones have a number for each layer."""
    if not any(".attn_q" in name for name in tensors):
        return
    for key in ("attention.head_count", "attention.head_count_kv", "rope.dimension_count"):
        if isinstance(header.of(key), int):
            _check_whole(header, key, MOST_CONTEXT, required=False)
    heads, shared = header.of("attention.head_count"), header.of("attention.head_count_kv")
    if isinstance(heads, int) and isinstance(shared, int) and shared and heads % shared:
        raise _Contradiction(f"{heads} attention heads do not share {shared} key heads evenly")


def _check_rotation(header: GgufHeader) -> None:
    """Rotary embeddings turn whole pairs of a head's numbers; layers with windows may have other heads."""
    heads = number(header, "attention.head_count")
    usual = number(header, "embedding_length") // heads if heads else 0
    for end in ("", "_swa"):
        usual = number(header, f"attention.key_length{end}", usual)
        rotated = number(header, f"rope.dimension_count{end}")
        if rotated % 2:
            raise _Contradiction(f"rotary embeddings of {rotated} dimensions, an odd number")
        if heads and rotated > usual:
            raise _Contradiction(
                f"rope.dimension_count{end} is {rotated}, and heads have {usual} numbers"
            )
    sections = header.of("rope.dimension_sections")
    if isinstance(sections, tuple) and heads and sum(map(_whole, sections)) > usual:
        raise _Contradiction(f"rope.dimension_sections are {sections}, heads have {usual} numbers")


def _check_windows(header: GgufHeader) -> None:
    """Of layers with sliding windows, and of the last ones, which read the caches of two before them."""
    layers, window = number(header, "block_count"), number(header, "attention.sliding_window")
    narrow = header.of("attention.sliding_window_pattern")
    if not 0 <= window < MOST_CONTEXT:
        raise _Contradiction(f"attention.sliding_window is {window}, not from 0 to {MOST_CONTEXT}")
    listed = narrow if isinstance(narrow, tuple) and len(narrow) == layers else None
    if window and listed and not any(listed):
        raise _Contradiction(
            f"attention.sliding_window is {window}, and its pattern has no layer with one"
        )
    shared = number(header, "attention.shared_kv_layers")
    if not 0 <= shared <= layers - 2:
        raise _Contradiction(f"attention.shared_kv_layers is {shared}, it has {layers} layers")
    first = layers - shared
    readers = {bool(one) for one in listed[first:]} if listed and shared else set()
    if listed and any(bool(listed[first - 1 - one]) != one for one in readers):
        raise _Contradiction(
            f"the last {shared} layers (attention.shared_kv_layers) read the caches of layers {first - 2} and "
            f"{first - 1}, which by attention.sliding_window_pattern are of another kind"
        )


def _check_experts(header: GgufHeader) -> None:
    """A token goes through some of the experts, of some groups."""
    experts, used = number(header, "expert_count"), number(header, "expert_used_count")
    if not min(experts, 1) <= used <= experts:
        raise _Contradiction(f"expert_used_count is {used}, it has {experts} experts")
    groups, chosen = (number(header, f"expert_group_{part}") for part in ("count", "used_count"))
    if groups and (groups >= experts or experts % groups):
        raise _Contradiction(f"expert_group_count is {groups}, it has {experts} experts")
    if groups > 1 and not 0 < chosen < groups:
        raise _Contradiction(f"expert_group_used_count is {chosen}, it has {groups} groups")


def _whole(value: object) -> int:
    return value if isinstance(value, int) else 0


def _check_states(header: GgufHeader, tensors: Mapping[str, GgufTensor]) -> None:
    """Of layers that keep a running state; Mamba's first kind knows no groups."""
    for key in STATE_SIZES:
        _check_whole(header, key, MOST_CONTEXT, required=False)
    grouped = any(name.endswith(".ssm_norm.weight") for name in tensors)
    shared = [("embedding_length", "wkv.head_size")]
    if grouped:
        _check_whole(header, "ssm.group_count", MOST_CONTEXT, required=False)
        shared += [("ssm.inner_size", key) for key in ("ssm.time_step_rank", "ssm.group_count")]
    for whole, part in shared:
        size, count = header.of(whole), header.of(part)
        if isinstance(size, int) and isinstance(count, int) and size % count:
            raise _Contradiction(f"{whole} is {size}, no multiple of {part}, {count}")


def _check_heads(header: GgufHeader, tensors: Mapping[str, GgufTensor]) -> None:
    """llama.cpp's kernel writes past the end of other heads, and the logits are no numbers."""
    width = header.of("wkv.head_size")
    seventh = any(name.endswith(RWKV7_HEADS) for name in tensors)
    if seventh and isinstance(width, int) and width % RWKV7_STEP:
        raise ModelUnusable(
            f"{header.path} has heads of {width} numbers ({header.architecture}.wkv.head_size), and "
            f"llama.cpp computes only multiples of {RWKV7_STEP} rightly; choose another model"
        )


def _check_whole(header: GgufHeader, key: str, most: int, *, required: bool) -> None:
    value = header.of(key)
    if value is None and not required:
        return
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= most:
        problem = "is missing" if value is None else f"is {value!r}, not from 1 to {most}"
        raise _Contradiction(f"{header.architecture}.{key} {problem}")


def _check_layers(header: GgufHeader, tensors: Mapping[str, GgufTensor]) -> None:
    if not tensors:
        raise _Contradiction("it holds no weights")
    found = (re.search(r"(?:^|\.)blk\.(\d{1,4})\.", name) for name in tensors)
    layers = 1 + max((int(match[1]) for match in found if match), default=-1)
    promised = header.of("block_count")
    assert isinstance(promised, int)
    if layers < promised:
        raise _Contradiction(f"it promises {promised} layers and holds {layers}")
    drafting = number(header, "nextn_predict_layers")
    if not 0 <= drafting < promised:
        raise _Contradiction(f"nextn_predict_layers is {drafting}, it has {promised} layers")


def _check_vocabulary(header: GgufHeader, tensors: Mapping[str, GgufTensor]) -> None:
    tokens = header.metadata.get(TOKENS)
    if not isinstance(tokens, tuple) or not tokens or not isinstance(tokens[0], str):
        raise _Contradiction(f"{TOKENS} is no list of texts")
    for key in PER_TOKEN:
        listed = header.metadata.get(key, tokens)
        if not isinstance(listed, tuple) or len(listed) != len(tokens):
            raise _Contradiction(f"{key} is no list of {len(tokens)} entries, one for each token")
    for key in END_TOKENS:
        token = header.metadata.get(key, 0)
        if not isinstance(token, int) or not 0 <= token < len(tokens):
            raise _Contradiction(f"{key} is {token!r}, it has {len(tokens)} tokens")
    embedding = tensors.get("token_embd.weight")
    if embedding is None:
        return
    shape = (header.of("embedding_length"), len(tokens))
    if embedding.shape[:2] != shape:
        raise _Contradiction(
            f"token_embd.weight has shape {embedding.shape}, its numbers say {shape}"
        )
