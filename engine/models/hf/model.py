"""A causal model of the transformers library: loaded with care, run through its public forward."""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from inspect import signature
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from torch import Tensor, nn

from engine.decoder.architecture import library_config
from engine.decoder.checkpoint import Checkpoint
from engine.decoder.config import read_config
from engine.decoder.decoder import Dense, Linear
from engine.decoder.weights import dtype_named
from engine.errors import EngineError, ModelUnusable
from engine.models.own.precision import change
from engine.platform.upcast_linear import UpcastLinear, wide_type
from engine.request import ModelSpec

UNSTATED_CONTEXT = 2048  # tokens, where a config states none: what such models were trained with
KNOWN_WINDOWS = frozenset(
    {
        "sliding_window",
        "use_sliding_window",
        "max_window_layers",
        "sliding_window_pattern",
        "prefix_dense_sliding_window_pattern",  # like the last, it becomes ``layer_types``
    }
)
EXPERT_STEP = "decoder_sparse_step"  # of how many layers one has experts
STATE_NAME = "cache_params"  # of a running state, which forgets nothing again
# What forward calls its cache: since transformers 5.24 the first, whatever is in it.
CACHE_NAMES = ("cache", "past_key_values", STATE_NAME)
PICK_NAME = "logits_to_keep"  # of how many last rows forward gives logits
PLACE_NAME = "position_ids"  # of the rows; without them some families count every pass from 0
CLOSE = {torch.float32: 1e-4, torch.float16: 2e-2, torch.bfloat16: 1e-1}
"""Largest difference of logits that is rounding, over their largest; a wrong mask gives far more."""
# Kinds of layers that keep a running state, or nothing: no mask of ours is for them.
RUNNING = frozenset({"linear_attention", "conv", "hybrid", "moe", "mlp"})
TRIED = 9  # tokens of a pass that only shows what a model does
SPARSE = ("window", "chunk", "local", "sparse")  # parts of names of fields that limit attention


@dataclass(frozen=True, slots=True)
class Branches:
    """Rows that are no continuation of all rows before them.

    ``depths`` [m] of all uncommitted rows; ``seen`` [n, m]: which of them each of n new rows sees.
    """

    length: int  # committed rows: all rows see them, as far as a window reaches
    depths: Sequence[int]
    seen: np.ndarray

    def positions(self, rows: int) -> NDArray[np.int64]:
        """Of the new rows."""
        return self.length + np.asarray(self.depths, dtype=np.int64)[-rows:]

    def visible(self, window: int | None) -> NDArray[np.bool_]:
        """Which of all rows each new one sees, [n, length + m]."""
        everywhere = np.ones((len(self.seen), self.length), dtype=bool)
        every = self.length + np.asarray(self.depths, dtype=np.int64)
        at = np.concatenate((np.arange(self.length), every))
        seen = np.concatenate((everywhere, self.seen), 1)
        return seen if window is None else seen & (at > every[-len(seen) :, None] - window)


@dataclass(frozen=True, slots=True)
class Block:
    """A continuation in one shape: filled up with copies of its last row, over whole blocks of keys."""

    length: int  # rows before the new ones
    new: int
    rows: int  # of the pass
    keys: int

    def positions(self, rows: int) -> NDArray[np.int64]:
        """Of the pass's rows."""
        return self.length + np.arange(rows).clip(max=self.new - 1)

    def visible(self, window: int | None) -> NDArray[np.bool_]:
        """Which of the keys each row sees, [rows, keys]."""
        own, at = self.positions(self.rows)[:, None], np.arange(self.keys)
        return (at <= own) & (at > own - (window or self.keys))


@dataclass(frozen=True, slots=True)
class PassResult:
    """What one pass computed."""

    logits: Tensor  # [last, V]
    cache: Any
    hidden: Tensor | None  # [rows, C] after the final norm, if wanted


@dataclass(frozen=True, slots=True)
class CausalModel:
    """A loaded model with what its forward takes."""

    module: Any
    config: Any  # of the text part
    cache_name: str
    dtype: torch.dtype
    device: torch.device
    parameters: int
    picks: bool  # whether forward takes the rows whose logits are wanted
    places: bool  # whether forward takes the positions of rows

    @property
    def family(self) -> str:
        """What its config calls it."""
        return str(self.config.model_type)

    def attention_only(self) -> bool:
        """Whether all that the model remembers are keys and values, row by row."""
        from transformers import DynamicCache
        from transformers.cache_utils import DynamicLayer, DynamicSlidingWindowLayer

        if self.cache_name == STATE_NAME:
            return False
        layers = DynamicCache(config=self.config).layers
        return all(type(layer) in (DynamicLayer, DynamicSlidingWindowLayer) for layer in layers)

    def sparse_fields(self) -> list[str]:
        """Fields of the config that limit attention in a way that our masks do not know."""
        kinds = set(getattr(self.config, "layer_types", None) or ())
        fields = self.config.to_dict().items()
        strange = {
            name
            for name, value in fields
            if value
            and name.lstrip("_") not in KNOWN_WINDOWS
            and "expert" not in name
            and name != EXPERT_STEP
            and any(part in name for part in SPARSE)
        }
        if kinds & RUNNING:  # of which several rows are read at once
            strange = {name for name in strange if not name.endswith("chunk_size")}
        return sorted(strange | (kinds - {"full_attention", "sliding_attention"} - RUNNING))

    def run(
        self,
        tokens: Sequence[int],
        cache: Any,
        place: int | Branches | Block,
        *,
        last: int,
        hidden: bool,
    ) -> PassResult:
        """One pass over new rows after ``cache``; None: an empty one of the model's own kind.

        ``place``: how many rows are before them, where they continue all of these.
        Logits of the ``last`` rows: a vocabulary of 262144 may be a third of a small model's work.
        """
        inputs: dict[str, Any] = {
            "input_ids": torch.tensor([list(tokens)], device=self.device),
            "use_cache": True,
            self.cache_name: cache,
        }
        if not isinstance(place, int) and cache.sees_rows:
            positions = torch.from_numpy(place.positions(len(tokens)))[None].to(self.device)
            inputs |= {PLACE_NAME: positions, "attention_mask": self._masks(place)}
        elif isinstance(place, int) and self.places:
            inputs[PLACE_NAME] = torch.arange(place, place + len(tokens), device=self.device)[None]
        if self.picks:
            inputs[PICK_NAME] = last
        if hidden:
            inputs["output_hidden_states"] = True
        found = self.module(**inputs)
        states = found.hidden_states[-1][0] if hidden else None
        kept = getattr(found, self.cache_name, None)
        if kept is None:
            raise ModelUnusable(_without_cache(self.family))
        return PassResult(found.logits[0, -last:], kept, states)

    def _masks(self, place: Branches | Block) -> Tensor | dict[str, Tensor]:
        """Additive masks [1, 1, n, keys]; by kind of layer where the model has two kinds."""
        window = getattr(self.config, "sliding_window", None)
        if getattr(self.config, "use_sliding_window", True) is False:
            window = None
        kinds = set(getattr(self.config, "layer_types", None) or ())
        full = _mask(place.visible(None), self.dtype).to(self.device)
        if not window or kinds == {"full_attention"}:
            return full
        windowed = _mask(place.visible(int(window)), self.dtype).to(self.device)
        both = {"full_attention": full, "sliding_attention": windowed}
        return both if kinds == set(both) else windowed


def _mask(visible: NDArray[np.bool_], dtype: torch.dtype) -> Tensor:
    """0 where a row sees, the least number where not: eager attention reads a bool mask as 0 and 1."""
    mask = torch.zeros(visible.shape, dtype=dtype)
    return mask.masked_fill_(torch.from_numpy(~visible), torch.finfo(dtype).min)[None, None]


def context_of(config: Any, wanted: int | None) -> int:
    """Tokens that the model was made for, or fewer if fewer are wanted.

    A model whose rotary frequencies change with the length has keys that do not mix across that
    change, so its context ends there.
    """
    names = (
        "max_position_embeddings",
        "n_positions",
        "n_ctx",
        "max_seq_len",
        "max_sequence_length",
    )
    stated = [v for n in names if isinstance(v := getattr(config, n, None), int) and v > 0]
    limits = [stated[0] if stated else UNSTATED_CONTEXT, *([] if wanted is None else [wanted])]
    rope = getattr(config, "rope_parameters", None) or {}
    first = rope.get("original_max_position_embeddings")
    if rope.get("rope_type") == "longrope" and first:
        limits.append(first)
    return int(min(limits))


def load_model(spec: ModelSpec) -> CausalModel:
    """The model of a spec; raises ModelUnusable with the reason."""
    folder = Path(spec.folder)
    read_config(folder)
    _check_size(folder, library_config(folder), Checkpoint(folder))
    dtype, device = dtype_named(spec.dtype), torch.device(spec.device)
    module = _read(folder, dtype, device)
    parameters = sum(parameter.numel() for parameter in module.parameters())
    family = str(module.config.model_type)
    with library_errors_as_ours(family):
        laid_out = _lays_out(spec, module)
    if not laid_out:
        del module  # memory has room for one alone
        module = _read(folder, dtype, device)
    taken = signature(module.forward).parameters
    for name in CACHE_NAMES:
        if name in taken:
            config = module.config.get_text_config(decoder=True)
            picks = PICK_NAME in taken
            with library_errors_as_ours(family):
                places = PLACE_NAME in taken and _counts_from_zero(module)
            return CausalModel(module, config, name, dtype, device, parameters, picks, places)
    raise ModelUnusable(f"{folder}: {_without_cache(family)}")


def _without_cache(family: str) -> str:
    return (
        f"the transformers library gives family {family!r} no cache that can be handed from pass "
        "to pass; choose another model"
    )


@contextmanager
def library_errors_as_ours(family: str) -> Iterator[None]:
    """Raise ModelUnusable where the library's own code fails: a config may describe what cannot run."""
    try:
        yield
    except (EngineError, torch.OutOfMemoryError):
        raise
    except Exception as error:  # two hundred families, each with errors of its own
        raise ModelUnusable(
            f"the first passes of family {family!r} fail in the transformers library "
            f"({type(error).__name__}: {_first_line(error)}); choose another model"
        ) from error


def _lays_out(spec: ModelSpec, module: Any) -> bool:
    """Replace the linear maps by faster ones; False: the module reads the weights itself, so it is broken."""
    if spec.device != "cpu":
        return True
    processor, dtype = torch.device("cpu"), dtype_named(spec.dtype)
    held = change(spec, processor, dtype)
    if wide_type(processor, dtype) != dtype:  # what is widened stays where it was
        lay_out(module, held)
        return True
    stored = _tried(module)
    lay_out(module, held)
    difference = (_tried(module) - stored).abs().max()
    return bool(difference <= CLOSE[dtype] * stored.abs().max())  # False for NaN


def lay_out(module: Any, change: Callable[[Linear], Linear]) -> None:
    """Let ``change`` compute the module's linear maps.

    The library multiplies by the weights as they are stored. Milliseconds for an 8192 x 2048 float32
    map with 1, 2, 4, 8, 16 and 64 rows on two cores with AVX2 alone: stored 4.0, 9.0, 19, 15, 18 and
    36, packed 3.8, 3.9, 5.6, 5.4, 8.1 and 21. A packed weight is replaced by one of the same shape
    that is not a number: code that reads it without the map is found out.
    """
    for each in module.modules():
        kind: type = type(each)
        if kind is not nn.Linear:  # another's forward may do more
            continue
        stored = Dense(each.weight.detach(), None if each.bias is None else each.bias.detach())
        found = change(stored)
        if found is stored:
            continue
        each.forward = found
        if not isinstance(found, UpcastLinear):
            each.weight = nn.Parameter(_nothing(each.weight), requires_grad=False)


def _nothing(like: Tensor) -> Tensor:
    """Of the same shape, in the memory of one number."""
    return torch.full((1, 1), torch.nan, dtype=like.dtype, device=like.device).expand(like.shape)


def _counts_from_zero(module: Any) -> bool:
    """Whether forward counts positions from 0 where it is given none; RoBERTa's does not.

    The same positions give the same sums in any dtype, so float32's rounding is the limit.
    """
    default = _tried(module)
    given = _tried(module, torch.arange(TRIED, device=module.device)[None])
    return bool((given - default).abs().max() <= CLOSE[torch.float32] * default.abs().max())


@torch.inference_mode()
def _tried(module: Any, positions: Tensor | None = None) -> Tensor:
    """Logits of a few tokens, in float32."""
    vocabulary = int(module.config.get_text_config(decoder=True).vocab_size)
    ids = torch.tensor([[(7 * i + 3) % vocabulary for i in range(TRIED)]], device=module.device)
    places = {} if positions is None else {PLACE_NAME: positions}
    found: Tensor = module(input_ids=ids, **places).logits.float()
    return found


def _check_size(folder: Path, config: Any, checkpoint: Checkpoint) -> None:
    """Refuse before memory is taken: the library would fill missing weights with random numbers."""
    from transformers import AutoModelForCausalLM

    library: Any = AutoModelForCausalLM
    try:
        with torch.device("meta"):
            outline = library.from_config(config, trust_remote_code=False)
        outline.tie_weights()
    except Exception as error:  # two hundred families, each with errors of its own
        raise ModelUnusable(f"{folder}: {_first_line(error)}") from error
    wanted = sum(parameter.numel() for parameter in outline.parameters())
    held = sum(math.prod(checkpoint.shape(name)) for name in checkpoint.names)
    if wanted > held:
        raise ModelUnusable(
            f"{folder}: config.json describes {wanted} weights and the files hold {held}; download "
            "the model again"
        )


def _read(folder: Path, dtype: torch.dtype, device: torch.device) -> Any:
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging

    library: Any = AutoModelForCausalLM
    bars: Any = logging
    shown = bars.is_progress_bar_enabled()
    bars.disable_progress_bar()
    try:
        module, report = library.from_pretrained(
            str(folder), dtype=dtype, local_files_only=True, trust_remote_code=False,
            use_safetensors=True, ignore_mismatched_sizes=True, output_loading_info=True,
        )  # fmt: skip
    except (OSError, ValueError, RuntimeError, ImportError, KeyError, SafetensorError) as error:
        raise ModelUnusable(f"{folder}: {_first_line(error)}") from error
    finally:
        if shown:
            bars.enable_progress_bar()
    _check_report(folder, report)
    return module.eval().to(device)


def _check_report(folder: Path, report: dict[str, Any]) -> None:
    """Refuse missing tensors, for which the library takes random numbers."""
    problems = {
        "missing_keys": "tensors are missing",
        "mismatched_keys": "tensors have another shape than the config says",
        "unexpected_keys": "tensors have no place in this family",
        "error_msgs": "tensors cannot be converted",
    }
    for kind, what in problems.items():
        found = sorted(str(k[0] if isinstance(k, tuple) else k) for k in report.get(kind) or ())
        if found:
            raise ModelUnusable(
                f"{folder}: {len(found)} {what}, {found[0]} first; download the model again"
            )


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
