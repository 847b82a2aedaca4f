"""What each layer of a shape weighs, caches and keeps running, where layers differ as where they do not."""

from dataclasses import replace

from engine.hardware.shape import LayerKinds, ModelShape

SMALL = frozenset({"norms", "router", "state", "biases"})  # kept in float32 by every GGUF type
_NUMBER = 4  # bytes: llama.cpp keeps running states in float32
_ALIKE = LayerKinds()


def completed(shape: ModelShape) -> ModelShape:
    """The shape with what its layers together cache and keep running."""
    if shape.kinds is None:
        return shape
    layers = range(shape.layers)
    one, kinds = _NUMBER * _state(shape), shape.kinds
    narrow = [_cached(shape, index) for index in layers if not _sees_all(shape, index)]
    return replace(
        shape,
        cached=sum(_cached(shape, index) for index in layers),
        window=kinds.window,
        narrow=sum(narrow) if kinds.window else 0,
        used=kinds.used,
        state=one * sum(_runs(shape, index) for index in layers),
        layer_state=_NUMBER * kinds.sums * kinds.sum_dim**2,
        mixed=3 * _convolved(kinds) + 2 * kinds.sums * kinds.sum_dim,
    )


def layer_weights(shape: ModelShape, index: int) -> dict[str, int]:
    """The weights of one layer by what they are for."""
    kinds = shape.kinds or _ALIKE
    mixing = _running(shape) if _runs(shape, index) else _attention(shape, index)
    feeding = _feed_forward(shape, index)
    own = shape.hidden * (2 * kinds.per_layer + bool(kinds.per_layer))
    biases = _biases(shape) if kinds.bias else 0
    return mixing | feeding | {"norms": 2 * shape.hidden, "own input": own, "biases": biases}


def expert_share(shape: ModelShape, index: int) -> float:
    """Of the weights of one layer, what its experts are."""
    if shape.dense or index < (shape.kinds or _ALIKE).dense:
        return 0.0
    whole = sum(layer_weights(shape, index).values())
    return 3 * shape.hidden * shape.feed_forward * shape.experts / whole


def called_experts(experts: int, used: int, rows: int) -> float:
    """Experts that some row of a pass goes through, if each row's are drawn independently."""
    return experts * (1 - (1 - used / experts) ** rows)


def own_embeddings(shape: ModelShape) -> int:
    """Weights of the layers' own embeddings and of the map that mixes them."""
    width = (shape.kinds or _ALIKE).per_layer
    return width and width * (shape.layers * (shape.vocab + shape.hidden) + 1)


def drafting_weights(shape: ModelShape) -> int:
    """Of layers in the file that only draft: each is an attention layer after a map of two rows."""
    layers = (shape.kinds or _ALIKE).drafting
    last = sum(layer_weights(shape, shape.layers - 1).values())
    return layers * (last + 2 * shape.hidden**2 + 3 * shape.hidden)


def idle_weights(shape: ModelShape) -> int:
    """Weights that one token does not read: other experts, and tables in which it looks up a row."""
    kinds = shape.kinds or _ALIKE
    expert = 3 * shape.hidden * shape.feed_forward
    others = shape.experts - kinds.used if kinds.used else 0
    return (shape.layers - kinds.dense) * others * expert + looked_up_weights(shape)


def looked_up_weights(shape: ModelShape) -> int:
    """Of the layers' own embeddings, of which a token reads one row."""
    return (shape.kinds or _ALIKE).per_layer * shape.layers * shape.vocab


def _sees_all(shape: ModelShape, index: int) -> bool:
    full = (shape.kinds or _ALIKE).full or shape.layers
    return (index + 1) * full // shape.layers > index * full // shape.layers


def _runs(shape: ModelShape, index: int) -> bool:
    """Whether a layer keeps a running state in place of keys and values."""
    return not (shape.kinds or _ALIKE).window and not _sees_all(shape, index)


def _shares(shape: ModelShape, index: int) -> bool:
    return index >= shape.layers - (shape.kinds or _ALIKE).shared


def _heads(shape: ModelShape, index: int) -> tuple[int, int]:
    """Key heads of a layer and their width."""
    kinds = shape.kinds or _ALIKE
    if not _sees_all(shape, index):
        return shape.kv_heads, shape.head_dim
    return kinds.full_kv_heads or shape.kv_heads, kinds.full_head_dim or shape.head_dim


def _cached(shape: ModelShape, index: int) -> int:
    if _shares(shape, index) or _runs(shape, index):
        return 0
    kv_heads, head_dim = _heads(shape, index)
    return 2 * kv_heads * head_dim


def _attention(shape: ModelShape, index: int) -> dict[str, int]:
    kinds = shape.kinds or _ALIKE
    kv_heads, head_dim = _heads(shape, index)
    queries = shape.hidden * shape.heads * head_dim * (2 + kinds.gate)  # and the output
    keys = 0 if _shares(shape, index) else shape.hidden * kv_heads * head_dim
    one_map = kinds.one_map and _sees_all(shape, index)
    return {"attention": queries + keys, "value": 0 if one_map else keys}


def _running(shape: ModelShape) -> dict[str, int]:
    kinds, hidden = shape.kinds or _ALIKE, shape.hidden
    if not kinds.sums:
        return {"attention": 4 * hidden**2, "state": kinds.taps * hidden}
    values = kinds.sums * kinds.sum_dim
    gates = 2 * kinds.sums * (hidden + 1) + kinds.sum_dim
    maps = hidden * (_convolved(kinds) + 2 * values)
    return {"attention": maps, "state": gates + kinds.taps * _convolved(kinds)}


def _convolved(kinds: LayerKinds) -> int:
    return (2 * kinds.sum_keys + kinds.sums) * kinds.sum_dim


def _state(shape: ModelShape) -> int:
    """Numbers that one layer keeps running: the convolution's last inputs, and the sum."""
    kinds = shape.kinds or _ALIKE
    inputs = _convolved(kinds) if kinds.sums else shape.hidden
    return max(kinds.taps - 1, 0) * inputs + kinds.sums * kinds.sum_dim**2


def _feed_forward(shape: ModelShape, index: int) -> dict[str, int]:
    kinds = shape.kinds or _ALIKE
    experts, width = shape.experts, shape.feed_forward
    if index < kinds.dense:
        experts, width = 0, kinds.dense_feed_forward
    elif _shares(shape, index):
        width = kinds.shared_feed_forward or width
    each = shape.hidden * (width * max(1, experts) + kinds.beside)
    return {"gate and up": 2 * each, "down": each, "router": shape.hidden * experts}


def _biases(shape: ModelShape) -> int:
    """Of all maps of a layer, its attention's sinks among them."""
    attention = (shape.heads + 2 * shape.kv_heads) * shape.head_dim + shape.hidden + shape.heads
    feeding = max(1, shape.experts) * (2 * shape.feed_forward + shape.hidden) + shape.experts
    return attention + feeding
