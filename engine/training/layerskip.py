"""The LayerSkip recipe (arXiv 2404.16710): layer dropout, rotational early exits, exit weights."""

import math


def dropout_rate(layer: int, layers: int, progress: float, maximum: float) -> float:
    """p(l, t) = S(t) D(l) p_max; both curves run exponentially from 0 to 1 (section 3.1)."""
    depth = math.exp(layer * math.log(2) / (layers - 1)) - 1
    time = math.exp(progress * math.log(2)) - 1
    return maximum * depth * time


def enabled_exits(step: int, layers: int, every: int) -> list[int]:
    """Rotational curriculum: each ``every``-th exit, one further each step; never the last layer.

    Exits are counted in layers run: exit e means layers 0..e-1.
    """
    return [e for e in range(1, layers) if (e + step) % every == 0]


def exit_weights(exits: list[int], layers: int, scale: float) -> dict[int, float]:
    """e(l): cumulative sums of indices for early exits, the last layer on top, normalised to 1."""
    raw = {e: scale * e * (e + 1) / 2 for e in exits}
    raw[layers] = layers + scale * (layers - 1) * layers / 2
    total = sum(raw.values())
    return {e: w / total for e, w in raw.items()}
