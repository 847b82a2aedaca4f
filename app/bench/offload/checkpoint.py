"""The bundled model written out several times as wide: a large checkpoint with a known function."""

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

from app.errors import RequestFailed
from app.models.downloads.partial_file import shown_bytes
from engine.decoder.decoder import Architecture, Dense, Linear
from engine.decoder.inflate import inflated, padded
from engine.decoder.weights import DecoderWeights, load_weights

SPARE = 512 << 20  # bytes that stay free on the disk
COPIED = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja")
MARK = "inflated.json"  # written last: a folder without it is not complete


@contextmanager
def model_folder(named: Path | None, prefix: str, parent: Path | None = None) -> Iterator[Path]:
    """Where large models are written: a named folder stays, another in ``parent`` is removed."""
    if named is not None:
        yield named
        return
    with tempfile.TemporaryDirectory(prefix=prefix, dir=parent) as folder:
        yield Path(folder)


def write_inflated(
    source: Path,
    times: int,
    folder: Path,
    progress: Callable[[str], None],
    hidden: int | None = None,
) -> None:
    """Write ``source`` in float32, feed-forward parts ``times`` as wide, one shard a layer.

    With ``hidden`` its states have that many numbers. The function stays the same.
    A folder that holds just that already is left as it is. Raises RequestFailed for lack of room.
    """
    mark = {"source": str(source), "changed": _changed(source), "times": times, "hidden": hidden}
    if _mark(folder) == mark:
        return
    weights = load_weights(source, torch.float32, torch.device("cpu"))
    weights = weights if hidden is None else padded(weights, hidden)
    _check_room(folder, _size(weights, times))
    folder.mkdir(parents=True, exist_ok=True)
    (folder / MARK).unlink(missing_ok=True)
    _write_config(source, folder, times, weights.arch)
    index: dict[str, str] = {}
    for at, layer in enumerate(weights.layers):
        progress(f"writing layer {at + 1} of {len(weights.layers)} of the large model")
        wide = inflated(replace(weights, layers=(layer,)), times)
        _write_shard(folder, at, dict(_tensors(wide, at)), index)
    outer = {"model.embed_tokens.weight": weights.embedding, "model.norm.weight": weights.norm}
    _write_shard(folder, len(weights.layers), outer, index)
    content = {"metadata": {}, "weight_map": index}
    (folder / "model.safetensors.index.json").write_text(json.dumps(content), encoding="utf-8")
    (folder / MARK).write_text(json.dumps(mark), encoding="utf-8")


def _changed(source: Path) -> int:
    return (source / "model.safetensors").stat().st_mtime_ns


def _mark(folder: Path) -> object:
    try:
        return json.loads((folder / MARK).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def _size(weights: DecoderWeights, times: int) -> int:
    arch = weights.arch
    return 4 * (weights.parameters + 3 * arch.layers * arch.hidden * arch.feed_forward * times)


def _check_room(folder: Path, needed: int) -> None:
    there = next(at for at in (folder, *folder.parents) if at.exists())
    free = shutil.disk_usage(there).free
    if free < needed + SPARE:
        raise RequestFailed(
            f"the large model needs {shown_bytes(needed + SPARE)} on the disk of {there}, which "
            f"has {shown_bytes(free)} free; make room, or name another place with --folder"
        )


def _write_config(source: Path, folder: Path, times: int, arch: Architecture) -> None:
    config = json.loads((source / "config.json").read_text(encoding="utf-8"))
    config["hidden_size"], config["rms_norm_eps"] = arch.hidden, arch.norm_eps
    config["intermediate_size"] *= times
    config["dtype"] = "float32"
    (folder / "config.json").write_text(json.dumps(config, indent=1), encoding="utf-8")
    for name in COPIED:
        shutil.copyfile(source / name, folder / name)


def _tensors(weights: DecoderWeights, index: int) -> Iterator[tuple[str, Tensor]]:
    """The first layer's tensors, under the names of layer ``index``."""
    layer, arch, at = weights.layers[0], weights.arch, f"model.layers.{index}."
    wide, narrow = arch.heads * arch.head_dim, arch.kv_heads * arch.head_dim
    q, k, v = torch.split(_weight(layer.qkv), [wide, narrow, narrow])
    gate, up = _weight(layer.gate_up).chunk(2)
    yield at + "input_layernorm.weight", layer.attention_norm
    yield at + "post_attention_layernorm.weight", layer.mlp_norm
    yield from (
        (f"{at}self_attn.{n}_proj.weight", w) for n, w in zip("qkv", (q, k, v), strict=True)
    )
    yield at + "self_attn.o_proj.weight", _weight(layer.out)
    yield from ((f"{at}mlp.{n}_proj.weight", w) for n, w in (("gate", gate), ("up", up)))
    yield at + "mlp.down_proj.weight", _weight(layer.down)


def _weight(linear: Linear) -> Tensor:
    assert isinstance(linear, Dense)  # as ``load_weights`` gives them
    return linear.weight


def _write_shard(
    folder: Path, number: int, tensors: dict[str, Tensor], index: dict[str, str]
) -> None:
    name = f"model-{number:05}.safetensors"
    save_file({n: t.contiguous() for n, t in tensors.items()}, folder / name)
    _drop_cached(folder / name)
    index |= dict.fromkeys(tensors, name)


def _drop_cached(file: Path) -> None:
    """Put the file on the disk and nowhere else: what is measured is the disk."""
    with file.open("rb") as written:
        os.fsync(written.fileno())
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(written.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
