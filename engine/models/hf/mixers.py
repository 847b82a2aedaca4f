"""The parts of a transformers model that read its running states, run so that each row's is kept.

The library reads several rows in one form, which shows the last state alone, and one row in another,
which rounds otherwise. Behind a prefix a row with a draft is therefore run like one without: alone.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from inspect import Signature, signature
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
    handles = []
    for part in module.modules():
        if hasattr(part, "layer_idx"):
            handles.append(part.register_forward_pre_hook(lambda one, _: inside.append(one)))
            handles.append(
                part.register_forward_hook(lambda *_: inside.pop() and None, always_call=True)
            )
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def run_by_rows(mixer: Any) -> None:
    """Let a part run as the cache asks: at once, or row by row with the state after each."""
    forward: Callable[..., Any] = mixer.forward
    if isinstance(forward, _ByRows):
        return
    mixer.forward = _ByRows(forward, mixer.layer_idx)


class _ByRows:
    """A part's forward."""

    def __init__(self, forward: Callable[..., Any], number: int) -> None:
        self._forward, self._number = forward, number
        self._taken: Signature = signature(forward)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        cache = next((v for v in (*args, *kwargs.values()) if isinstance(v, RunningCache)), None)
        if cache is None or isinstance(cache, _Watched):
            return self._forward(*args, **kwargs)
        if cache.ends():
            raise Aborted(f"the pass was aborted in layer {self._number}")
        call = self._taken.bind(*args, **kwargs)
        if MASK in call.arguments:
            call.arguments[MASK] = None
        layer = cache.layers[self._number]
        width = call.args[0].shape[1]
        found = []
        for row, parent, part in _parts(cache):
            layer.begin(parent)
            found.append(
                self._forward(
                    *(_cut(value, part, width) for value in call.args),
                    **{name: _cut(value, part, width) for name, value in call.kwargs.items()},
                )
            )
            layer.end(row)
        return _filled(_joined(found), width)


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
