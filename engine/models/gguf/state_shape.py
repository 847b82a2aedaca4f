"""What a conversation leaves in memory, from a GGUF header: attention's cache and recurrent state.

Layers are recognised by their tensors, and the sizes of the state follow from the header's numbers, as
in llama.cpp's ``llama_hparams``: no architecture is looked up by its name.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite

from engine.models.gguf.header import GgufHeader

ROLLBACK_BYTES = 512 << 20  # of one conversation, for states of its last rows
MOST_ROLLBACK = 16  # drafted tokens: longer drafts than the drafters' chains are rare
CHECKPOINTS = 3  # states of earlier tokens that are kept for each conversation
_RECURRENT = ("ssm_", "shortconv", "time_mix")
_RWKV_ROWS = 16
_NUMBER = 4  # bytes: llama.cpp keeps states in float32


@dataclass(frozen=True, slots=True)
class StateShape:
    """Of a model whose layers keep a running state, all of them or some."""

    cached: int  # numbers that a token leaves in the caches of all layers
    state: int  # bytes of one conversation's running state
    layer: int = 0  # of it, what one layer sums over all tokens
    mixed: int = 0  # numbers that a row of a pass takes in such a layer

    @property
    def rollback(self) -> int:
        """How many of the last rows the state may be kept for, too, to take drafted tokens back."""
        return min(MOST_ROLLBACK, ROLLBACK_BYTES // self.state) if self.state else 0


def state_shape(parts: Sequence[GgufHeader]) -> StateShape | None:
    """The shape that the headers of one model give; None where no layer keeps a state."""
    head = parts[0]
    layers = _tensors_by_layer(parts)
    depth = number(head, "block_count") - number(head, "nextn_predict_layers")
    recurrent, cached = 0, 0
    for layer, shapes in layers.items():
        if layer >= depth:  # layers that draft are not loaded
            continue
        runs = any(name.startswith(_RECURRENT) for name in shapes)
        recurrent += runs
        cached += _cached(head, shapes, runs=runs)
    if not recurrent:
        return None
    convolved, summed = _NUMBER * _convolved(head), _NUMBER * _summed(head)
    return StateShape(cached, recurrent * (convolved + summed), summed, _mixed(head))


def number(header: GgufHeader, key: str, otherwise: int = 0) -> int:
    """A whole number of the architecture's own; the largest of a list with one for each layer."""
    found = header.of(key)
    listed = found if isinstance(found, tuple) else (found,)
    numbers = (one for one in listed if isinstance(one, int | float) and isfinite(one))
    return max(map(int, numbers), default=otherwise)


def values_differ(parts: Sequence[GgufHeader]) -> bool:
    """Whether layers cache values of several widths: without flash attention llama.cpp pads all to the widest."""
    widths = set()
    for shapes in _tensors_by_layer(parts).values():
        if any(name.startswith(_RECURRENT) for name in shapes):
            continue
        names = ("attn_v.weight", "attn_k.weight", "attn_qkv.weight")
        widths |= {next((shapes[name][1] for name in names if name in shapes), 0)}
    return len(widths - {0}) > 1


def _tensors_by_layer(parts: Sequence[GgufHeader]) -> dict[int, dict[str, tuple[int, ...]]]:
    found: dict[int, dict[str, tuple[int, ...]]] = {}
    for part in parts:
        for tensor in part.tensors:
            if match := re.fullmatch(r"blk\.(\d{1,4})\.(.+)", tensor.name):
                found.setdefault(int(match[1]), {})[match[2]] = tensor.shape
    return found


def _cached(head: GgufHeader, shapes: dict[str, tuple[int, ...]], *, runs: bool) -> int:
    """Numbers that a token leaves in one layer: its key and its value, or one for both."""
    parts = ("attn_k.weight", "attn_v.weight", "attn_kv_a_mqa.weight")
    widths = [shape[1] for part in parts if len(shape := shapes.get(part, ())) > 1]
    if not widths and not runs and "attn_qkv.weight" in shapes:
        usual = number(head, "embedding_length") // max(number(head, "attention.head_count"), 1)
        each = [number(head, f"attention.{part}_length", usual) for part in ("key", "value")]
        return number(head, "attention.head_count_kv") * sum(each)
    return sum(widths)


def _convolved(head: GgufHeader) -> int:
    """Numbers of one layer's last inputs."""
    hidden = number(head, "embedding_length")
    if number(head, "wkv.head_size"):
        return number(head, "token_shift_count", 2) * hidden
    if taps := number(head, "shortconv.l_cache"):
        return hidden * (taps - 1)
    taps = number(head, "ssm.conv_kernel")
    if width := number(head, "kda.head_dim"):
        return 3 * (taps - 1 if taps else 3) * number(head, "attention.head_count") * width
    return max(taps - 1, 0) * _channels(head)


def _channels(head: GgufHeader) -> int:
    """Of the convolution in front of a sum: values, keys and queries."""
    states = number(head, "ssm.group_count") * number(head, "ssm.state_size")
    return number(head, "ssm.inner_size") + 2 * states


def _mixed(head: GgufHeader) -> int:
    """The convolution's inputs, as they come, joined to earlier ones and convolved; gates and the output.

    RWKV mixes a row with the one before for six maps, whose results are kept until all are there.
    """
    if number(head, "wkv.head_size"):
        return _RWKV_ROWS * number(head, "embedding_length")
    return 3 * _channels(head) + 2 * number(head, "ssm.inner_size")


def _summed(head: GgufHeader) -> int:
    """Numbers of one layer's sum over all tokens."""
    if width := number(head, "wkv.head_size"):
        return number(head, "embedding_length") * width
    if width := number(head, "kda.head_dim"):
        return width * width * number(head, "attention.head_count")
    return number(head, "ssm.state_size") * number(head, "ssm.inner_size")
