"""The parts of a transformers model that read its running states, run so that each row's is kept.

The library reads several rows in one form, which shows the last state alone, and one row in another,
which rounds otherwise. After a prefix a row with a draft is therefore run like one without: alone.
Only linear maps, which see no other row, take all rows at once.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from inspect import BoundArguments, Signature, signature
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from typing_extensions import override

from engine.errors import Aborted
from engine.models.hf.running_cache import RunningCache, StateLayer

MASK = "attention_mask"  # of padding, which one sequence has none of


class Seen(NamedTuple):
    """Which parts of a model asked for states, and which for keys and values."""

    states: set[nn.Module]
    rows: set[nn.Module]


class _Watched(RunningCache):
    """Notes which part of the model calls it."""

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.inside: list[nn.Module] = []  # parts that run just now, the innermost last
        self.seen = Seen(set(), set())

    @override
    def update(self, *args: Any, **kwargs: Any) -> Any:
        self.seen.rows.update(self.inside[-1:])
        return super().update(*args, **kwargs)

    @override
    def update_conv_state(self, *args: Any, **kwargs: Any) -> Any:
        self.seen.states.update(self.inside[-1:])
        return super().update_conv_state(*args, **kwargs)

    @override
    def update_recurrent_state(self, *args: Any, **kwargs: Any) -> Any:
        self.seen.states.update(self.inside[-1:])
        return super().update_recurrent_state(*args, **kwargs)


@torch.inference_mode()
def mixers_of(module: Any, config: Any, cache_name: str) -> list[Any]:
    """The parts that keep running states in the cache; none where that is not so simple."""
    cache = _Watched(config)
    with _watching(module, cache.inside):
        ids = torch.tensor([[3, 10, 17]], device=module.device) % int(config.vocab_size)
        module(input_ids=ids, use_cache=True, **{cache_name: cache})
    states, rows = cache.seen
    numbers = {getattr(part, "layer_idx", None) for part in states}
    known = {at for at, layer in enumerate(cache.layers) if isinstance(layer, StateLayer)}
    simple = numbers == known and len(states) == len(known) and not states & rows
    return [part for part in module.modules() if part in states] if simple else []


@contextmanager
def _watching(module: nn.Module, inside: list[nn.Module]) -> Iterator[None]:
    """Keep ``inside`` the parts with a number of a layer that run."""

    def left(*_: object) -> None:
        inside.pop()

    handles = []
    for part in module.modules():
        if hasattr(part, "layer_idx"):
            handles.append(part.register_forward_pre_hook(lambda one, _: inside.append(one)))
            handles.append(part.register_forward_hook(left, always_call=True))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def run_by_rows(mixer: Any) -> None:
    """Let a part run as the cache asks: at once, or row by row with the state after each."""
    if not isinstance(mixer.forward, _ByRows):
        mixer.forward = _ByRows(mixer)


class _ByRows:
    """A part's forward.

    Its linear maps of its input, and the one that gives its result, take all rows at once: their
    weights are most of what it reads.
    """

    def __init__(self, mixer: Any) -> None:
        self._forward: Callable[..., Any] = mixer.forward
        self._number: int = mixer.layer_idx
        self._taken: Signature = signature(self._forward)
        self._maps = [_RowMap(one) for one in mixer.modules() if type(one) is nn.Linear]
        self._result: _RowMap | None = None  # known once it was seen

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        cache = next((v for v in (*args, *kwargs.values()) if isinstance(v, RunningCache)), None)
        if cache is None or isinstance(cache, _Watched):
            return self._forward(*args, **kwargs)
        if cache.ends():
            raise Aborted(f"the pass was aborted in layer {self._number}")
        call = self._taken.bind(*args, **kwargs)
        if MASK in call.arguments:
            call.arguments[MASK] = None
        if cache.parents is None or call.args[0].shape[1] == 1:
            return self._walk(call, cache, None)
        walk = _Walk(call.args[0], self._result)
        with self._mapped(walk):
            return self._walk(call, cache, walk)

    def _walk(self, call: BoundArguments, cache: RunningCache, walk: "_Walk | None") -> Any:
        """All rows, with the state after each."""
        layer, width = cache.layer(self._number), call.args[0].shape[1]
        found = []
        for row, parent, part in _parts(cache):
            layer.begin(parent)
            given = [_cut(value, part, width) for value in call.args]
            if walk:
                walk.row, walk.part = given[0], part
            named = {name: _cut(value, part, width) for name, value in call.kwargs.items()}
            found.append(self._forward(*given, **named))
            layer.end(row)
        if walk and walk.later and self._result:
            rows: Tensor = self._result.stored(_filled(torch.cat(walk.later, 1), width))
            return rows
        if walk and walk.last and walk.last[1] is found[-1] and found[-1].shape[:2] == (1, 1):
            self._result = walk.last[0]
        return _filled(_joined(found), width)

    @contextmanager
    def _mapped(self, walk: "_Walk") -> Iterator[None]:
        """The part's linear maps, with all rows of this pass."""
        for one in self._maps:
            one.begin(walk)
        try:
            yield
        finally:
            for one in self._maps:
                one.end()


@dataclass
class _Walk:
    """One pass of a part, row by row."""

    rows: Tensor  # [1, n, C] its input
    result: "_RowMap | None"  # the map whose result is the part's
    row: Tensor | None = None  # the part's input just now
    part: slice = field(default_factory=lambda: slice(0))
    later: list[Tensor] = field(default_factory=list)  # inputs of that map
    last: "tuple[_RowMap, Tensor] | None" = None  # the last other map that ran, and its result


class _RowMap:
    """A linear map of a part that runs row by row."""

    def __init__(self, linear: nn.Linear) -> None:
        self._linear = linear
        self._own = linear.__dict__.get("forward")
        self.stored: Callable[[Tensor], Tensor] = linear.forward
        self._walk: _Walk | None = None
        self._all: Tensor | None = None

    def begin(self, walk: _Walk) -> None:
        """Take the place of the map's own forward."""
        self._walk, self._all = walk, None
        self._linear.__dict__["forward"] = self

    def end(self) -> None:
        """Give the place back."""
        self._walk = self._all = None
        if self._own is None:
            del self._linear.__dict__["forward"]
        else:
            self._linear.__dict__["forward"] = self._own

    def __call__(self, given: Tensor) -> Tensor:
        walk = self._walk
        assert walk is not None
        if given is walk.row:
            if self._all is None:
                self._all = self.stored(walk.rows)
            return self._all[:, walk.part]
        if walk.result is self:
            walk.later.append(given)
            return given.new_empty((*given.shape[:-1], self._linear.out_features))
        found = self.stored(given)
        walk.last = self, found
        return found


def _parts(cache: RunningCache) -> Iterator[tuple[int, int, slice]]:
    """(number of the last row, of the row before them, their place in the pass) of rows that run together."""
    first, count = cache.first, cache.count
    if cache.parents is None:
        yield first + count - 1, first - 1, slice(0, count)
        return
    for at, parent in enumerate(cache.parents):
        yield first + at, parent, slice(at, at + 1)


def _cut(value: Any, part: slice, width: int) -> Any:
    """The rows of an argument that has some."""
    if isinstance(value, Tensor):
        return value[:, part] if value.dim() > 1 and value.shape[1] == width else value
    if isinstance(value, tuple):
        return tuple(_cut(one, part, width) for one in value)
    return value


def _joined(found: list[Any]) -> Any:
    """Rows one after the other; of several results the first one has them."""
    if isinstance(found[0], tuple):
        return torch.cat([one[0] for one in found], 1), *found[0][1:]
    return torch.cat(found, 1) if len(found) > 1 else found[0]


def _filled(found: Any, width: int) -> Any:
    """With rows of zeros after those that ran."""
    if isinstance(found, tuple):
        return _filled(found[0], width), *found[1:]
    missing = width - found.shape[1]
    return nn.functional.pad(found, (0, 0, 0, missing)) if missing else found
