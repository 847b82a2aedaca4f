"""The cache of a transformers model with running states: a state after every row that is not committed.

A running state is not a list of rows: what a row added cannot be cut off. So a pass leaves the state
that it began with as it was, and keeps the state after each of its rows; the one after the last
accepted row is taken over. In a tree a row begins with the state of its parent.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor
from transformers import DynamicCache
from transformers.cache_utils import (
    DummyLayer,
    DynamicLayer,
    DynamicSlidingWindowLayer,
    LinearAttentionAndFullAttentionLayer,
    LinearAttentionAndSlidingWindowAttentionLayer,
    LinearAttentionCacheLayerMixin,
    LinearAttentionLayer,
)
from typing_extensions import override

from engine.models.hf.cache import RowCache, RowLayer


@dataclass(frozen=True, slots=True)
class State:
    """One layer's state; its tensors are never written to."""

    convolved: tuple[Tensor | None, ...]  # the last inputs of each convolution
    recurrent: tuple[Tensor | None, ...]
    begun: tuple[bool, ...]

    @property
    def recurs(self) -> bool:
        """Whether it has more than inputs of convolutions."""
        return any(tensor is not None for tensor in self.recurrent)

    def moved(self, by: float) -> "State":
        """With this added to every number but those of convolutions."""
        moved = (None if tensor is None else tensor + by for tensor in self.recurrent)
        return State(self.convolved, tuple(moved), self.begun)

    @property
    def bytes(self) -> int:
        """Of its tensors."""
        return sum(t.nbytes for t in (*self.convolved, *self.recurrent) if t is not None)


class StateLayer(LinearAttentionLayer):
    """One layer's state after the committed rows, and after each of the others."""

    def __init__(self, number_of_states: int = 1) -> None:
        super().__init__(number_of_states)
        self.kept = self._now()
        self.after: dict[int, State] = {}  # by uncommitted row

    def begin(self, row: int) -> None:
        """Show the library a copy of the state after this uncommitted row; -1: of the committed one."""
        state = self.kept if row < 0 else self.after[row]
        for at in range(self.number_of_states):
            self.conv_states[at] = inputs = _copied(state.convolved[at])
            self.conv_kernel_size[at] = None if inputs is None else inputs.shape[-1]
            self.recurrent_states[at] = _copied(state.recurrent[at])
            self.has_previous_state[at] = state.begun[at]
            self.is_conv_states_initialized[at] = state.convolved[at] is not None
            self.is_recurrent_states_initialized[at] = state.recurrent[at] is not None

    def end(self, row: int) -> None:
        """What the library shows is the state after this row."""
        self.after[row] = self._now()

    def take(self, path: Sequence[int]) -> None:
        """The state after the last of these rows is the committed one; forget the others."""
        if path:
            self.kept = self.after[path[-1]]
        self.after = {}

    @override
    def update_recurrent_state(
        self, recurrent_states: Tensor, state_idx: int = 0, **kwargs: Any
    ) -> Tensor:
        """Take the tensor itself, where the library copies it."""
        self.recurrent_states[state_idx] = recurrent_states
        self.is_recurrent_states_initialized[state_idx] = True
        return recurrent_states

    def _now(self) -> State:
        count = range(self.number_of_states)
        return State(
            tuple(self.conv_states[at] for at in count),
            tuple(self.recurrent_states[at] for at in count),
            tuple(self.has_previous_state[at] for at in count),
        )


class StateRowLayer(StateLayer, RowLayer):  # type: ignore[misc,override,no-untyped-call]  # as the library mixes its own
    """A layer with a state, and with keys and values of every row."""

    is_compileable = False

    def __init__(self, number_of_states: int = 1) -> None:
        RowLayer.__init__(self)
        StateLayer.__init__(self, number_of_states)

    @override
    def lazy_initialization(self, *args: Any, **kwargs: Any) -> None:
        """The library gives keys and values by position, and states by name."""
        if args:
            RowLayer.lazy_initialization(self, *args)
        else:
            StateLayer.lazy_initialization(self, **kwargs)


_OURS: dict[type, type] = {
    DynamicLayer: RowLayer,
    DynamicSlidingWindowLayer: RowLayer,
    LinearAttentionLayer: StateLayer,
    LinearAttentionAndFullAttentionLayer: StateRowLayer,
    LinearAttentionAndSlidingWindowAttentionLayer: StateRowLayer,
    DummyLayer: DummyLayer,
}


def knows_layers(config: Any) -> bool:
    """Whether some layers of a model keep a running state, and each layer's kind is known here."""
    kinds = {type(layer) for layer in DynamicCache(config=config).layers}
    runs = any(issubclass(kind, LinearAttentionCacheLayerMixin) for kind in kinds)
    return runs and kinds <= set(_OURS)


class RunningCache(RowCache):
    """Keys, values and states of one sequence.

    ``parents``: of each row of the pass, which uncommitted row it follows; None: the rows continue the
    last one and are read at once, so only the state after them all is kept. ``first`` is the number
    of the pass's first row. Rows after these fill the pass up.
    """

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.layers = [_ours(layer) for layer in DynamicCache(config=config).layers]
        self.sees_rows = any(isinstance(layer, RowLayer) for layer in self.layers)
        self.parents: Sequence[int] | None = None
        self.first = self.count = 0

    @property
    def states(self) -> tuple[State, ...]:
        """Of the layers that keep one, after the committed rows."""
        return tuple(layer.kept for layer in self.running)

    @property
    def running(self) -> list[StateLayer]:
        """Layers that keep a state."""
        return [layer for layer in self.layers if isinstance(layer, StateLayer)]

    def layer(self, number: int) -> StateLayer:
        """One that keeps a state."""
        found = self.layers[number]
        assert isinstance(found, StateLayer)
        return found

    def states_after(self, row: int) -> tuple[State, ...] | None:
        """After an uncommitted row; None where it was not kept."""
        layers = self.running
        return tuple(n.after[row] for n in layers) if all(row in n.after for n in layers) else None

    def expect(self, first: int, count: int, parents: Sequence[int] | None) -> None:
        """Say which rows come next; see the class."""
        self.first, self.count, self.parents = first, count, parents

    def take(self, path: Sequence[int]) -> None:
        """Take over the states after these rows, in their order; keys and values are kept elsewhere."""
        for layer in self.running:
            layer.take(path)

    def go_to(self, states: Sequence[State]) -> None:
        """Begin with these states."""
        for layer, state in zip(self.running, states, strict=True):
            layer.kept, layer.after = state, {}


def _ours(layer: Any) -> Any:
    kind = _OURS[type(layer)]
    if issubclass(kind, StateLayer):
        return kind(layer.number_of_states)
    return kind()


def _copied(tensor: Tensor | None) -> Tensor | None:
    return None if tensor is None else tensor.clone()
