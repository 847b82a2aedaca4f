"""Keys and values of the transformers library's models: every row, cut and compacted as trees need it."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache
from typing_extensions import override

from engine.errors import Aborted


class RowCache(DynamicCache):
    """Keys and values of every row, even where layers forget them: trees need them all back.

    A pass that fills it ends at the next layer once ``ends`` says so, and leaves rows in those below:
    every attention hands its keys over here, whatever its family calls the layer that it is in.
    """

    def __init__(self) -> None:
        super().__init__()
        self.ends: Callable[[], bool] = bool

    @override
    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """All keys and values of a layer with the new ones [1, H, n, D] behind them; raises Aborted."""
        if self.ends():
            raise Aborted(f"the pass was asked to end in layer {layer_idx}")
        return super().update(key_states, value_states, layer_idx, *args, **kwargs)

    def cut(self, length: int) -> None:
        """Forget all rows behind the first ``length``, of which every layer may have another number."""
        for layer in self._filled():
            layer.keys, layer.values = (
                held[..., :length, :] for held in (layer.keys, layer.values)
            )

    def keep(self, length: int, path: Sequence[int]) -> None:
        """Rows [0, length) stay, those of ``path`` behind them follow in its order; others go."""
        for layer in self._filled():
            rows = torch.tensor([length + node for node in path], device=layer.keys.device)
            layer.keys, layer.values = (
                torch.cat((held[..., :length, :], held.index_select(-2, rows)), -2)
                for held in (layer.keys, layer.values)
            )

    def begin_as(self, other: "RowCache", length: int) -> None:
        """Copy the first ``length`` rows of another cache; this one is empty."""
        layers: list[Any] = other.layers
        for number, layer in enumerate(layers):
            if layer.is_initialized:
                self.update(layer.keys[..., :length, :], layer.values[..., :length, :], number)

    def _filled(self) -> list[Any]:
        layers: list[Any] = self.layers  # of one kind here; the library's type names several
        return [layer for layer in layers if layer.is_initialized]
