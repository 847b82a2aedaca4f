"""Keys and values of the transformers library's models: every row, cut and compacted as trees need it."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache, DynamicLayer
from typing_extensions import override

from engine.errors import Aborted

STEP = 256  # rows that a layer grows by: with every row the library copies all that are there


class RowLayer(DynamicLayer):  # type: ignore[no-untyped-call]  # the library's hook has no types
    """One layer's keys and values [1, H, n, D], with room after them for the next rows.

    ``keys`` and ``values`` are views of what is there so far, as the library reads them.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._held: list[Tensor] = []

    @override
    def update(
        self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """All keys and values with the new ones after them."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
            self._held = [key_states[..., :0, :], value_states[..., :0, :]]
        length = self.get_seq_length()
        end = length + key_states.shape[-2]
        if end > self._held[0].shape[-2]:
            self._held = [_roomier(held, length, end) for held in self._held]
        for held, fresh in zip(self._held, (key_states, value_states), strict=True):
            held[..., length:end, :] = fresh
        return self._show(end)

    def cut(self, length: int) -> None:
        """Forget all rows after the first ``length``, if there are any."""
        self._show(min(length, self.get_seq_length()))

    def keep(self, length: int, path: Sequence[int]) -> None:
        """Keep rows [0, length) and after them those of ``path``, in its order."""
        rows = torch.tensor([length + node for node in path], device=self._held[0].device)
        for held in self._held:
            held[..., length : length + len(path), :] = held.index_select(-2, rows)
        self._show(length + len(path))

    def first(self, length: int) -> tuple[Tensor, Tensor]:
        """Keys and values of the first ``length`` rows, in place."""
        keys, values = (held[..., :length, :] for held in self._held)
        return keys, values

    def _show(self, length: int) -> tuple[Tensor, Tensor]:
        self.keys, self.values = keys, values = self.first(length)
        return keys, values


def _roomier(held: Tensor, length: int, wanted: int) -> Tensor:
    """A copy of the first ``length`` rows with room for ``wanted`` and some more."""
    room = held.new_zeros(*held.shape[:-2], -(-wanted // STEP) * STEP, held.shape[-1])
    room[..., :length, :] = held[..., :length, :]
    return room


class RowCache(DynamicCache):
    """Keys and values of every row, even where layers forget them: trees need them all back.

    With ``block`` a pass gets as many rows of keys as fill blocks of it; the last ones are old or zero.

    A pass stops at the next layer once ``ends`` returns True, and leaves rows in the layers below: the
    attention of every family passes its keys through here.
    """

    sees_rows = True  # whether some layer attends to earlier rows

    def __init__(self) -> None:
        super().__init__()
        self.layer_class_to_replicate = RowLayer
        self.ends: Callable[[], bool] = bool
        self.block = 1  # rows; divides STEP

    @override
    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """All keys and values of a layer with the new ones [1, H, n, D] after them; raises Aborted."""
        if self.ends():
            raise Aborted(f"the pass was aborted in layer {layer_idx}")
        found = super().update(key_states, value_states, layer_idx, *args, **kwargs)
        layer = self.layers[layer_idx]
        if self.block == 1 or not isinstance(layer, RowLayer):
            return found
        return layer.first(-(-found[0].shape[-2] // self.block) * self.block)

    def cut(self, length: int) -> None:
        """Forget all rows after the first ``length``; layers may hold different numbers of rows."""
        for layer in self._filled():
            layer.cut(length)

    def keep(self, length: int, path: Sequence[int]) -> None:
        """Keep rows [0, length) and after them those of ``path``, in its order."""
        for layer in self._filled():
            layer.keep(length, path)

    def begin_as(self, other: "RowCache", length: int) -> None:
        """Copy the first ``length`` rows of another cache; this one is empty."""
        for number, layer in enumerate(other.layers):
            if isinstance(layer, RowLayer) and layer.is_initialized:
                self.update(*layer.first(length), number)

    def _filled(self) -> list[RowLayer]:
        """Layers that hold rows; in some families layers read those of others."""
        own = (layer for layer in self.layers if isinstance(layer, RowLayer))
        return [layer for layer in own if layer.is_initialized]
