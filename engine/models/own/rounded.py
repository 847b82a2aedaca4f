"""Weights and rows of 8 bits (W8A8): rounded once, and kept in the model's folder for the next load."""

import hashlib
import json
import logging
import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from engine.decoder.decoder import Dense, Layer, Linear
from engine.decoder.weights import DecoderWeights, StoredDecoder, load_weights
from engine.models.own.smoothing import TOKENS, Smoother
from engine.platform.native_linear import int8_kernel
from engine.platform.onednn_int8 import Rounded

KEPT = "slipstream-int8"  # a folder in the model's own
VERSION = 1  # of how weights are rounded
WORTH_KEEPING = 2**28  # bytes of files: smaller ones are rounded in a second
MAPS = ("qkv", "out", "gate_up", "down")
NORMS = ("attention_norm", "mlp_norm", "q_norm", "k_norm")

log = logging.getLogger(__name__)


def rounded_weights(folder: Path, dtype: torch.dtype, context: int | None) -> DecoderWeights:
    """Read a folder on the processor; raises ModelUnusable. What lies outside the maps is ``dtype``."""
    kernel = int8_kernel()
    kept = KeptRounding.of(folder)
    if kept.complete:
        try:
            return kept.read(
                StoredDecoder(folder, context), dtype, lambda each: each.packed(kernel)
            )
        except (OSError, SafetensorError, KeyError) as error:
            log.warning("%s cannot be read and is made again: %s", kept.place, error)
    return _Rounding(kept, lambda each: each.packed(kernel)).read(folder, dtype, context)


@dataclass(frozen=True, slots=True)
class KeptRounding:
    """The rounded layers of one folder, a file each; valid while the folder's files stay the same."""

    place: Path
    source: str  # of which files they were made

    @classmethod
    def of(cls, folder: Path) -> "KeptRounding":
        """Where they are, or would be."""
        files = [*sorted(folder.glob("*.safetensors")), folder / "config.json"]
        facts = [(f.name, f.stat().st_size, f.stat().st_mtime_ns) for f in files if f.exists()]
        made_of = json.dumps([VERSION, TOKENS, facts])
        return cls(folder / KEPT, hashlib.sha256(made_of.encode()).hexdigest())

    @property
    def complete(self) -> bool:
        """Whether all is there, and made of the files as they are now."""
        mark = self.place / "made-of"
        return mark.is_file() and mark.read_text(encoding="utf-8") == self.source

    def read(
        self, stored: StoredDecoder, dtype: torch.dtype, pack: Callable[[Rounded], Linear]
    ) -> DecoderWeights:
        """All weights; raises OSError, SafetensorError or KeyError for damaged files."""
        cpu = torch.device("cpu")
        outer = stored.outer(dtype, cpu)
        last = load_file(self.place / "outer")
        return replace(
            outer,
            norm=last["norm"],
            head=pack(_of(last, "head")),
            layers=tuple(
                self._layer(index, pack, rotates=index not in outer.arch.no_rope)
                for index in range(outer.arch.layers)
            ),
        )

    def _layer(self, index: int, pack: Callable[[Rounded], Linear], *, rotates: bool) -> Layer:
        found = load_file(self.place / f"layer-{index:03d}")
        maps = {name: pack(_of(found, name)) for name in MAPS}
        return Layer(
            attention_norm=found["attention_norm"],
            mlp_norm=found["mlp_norm"],
            q_norm=found.get("q_norm"),
            k_norm=found.get("k_norm"),
            rotates=rotates,
            **maps,
        )


class _Rounding:
    """Rounds a folder's maps as they are read, and keeps them where that is worth it and can be."""

    def __init__(self, kept: KeptRounding, pack: Callable[[Rounded], Linear]) -> None:
        self._kept, self._pack = kept, pack
        self._fresh: Path | None = kept.place.with_name(f".{KEPT}-{os.getpid()}")

    def read(self, folder: Path, dtype: torch.dtype, context: int | None) -> DecoderWeights:
        if sum(file.stat().st_size for file in folder.glob("*.safetensors")) < WORTH_KEEPING:
            self._fresh = None
        smoothers: list[Smoother] = []
        layers = count()

        def each(outer: DecoderWeights) -> Callable[[Layer], Layer]:
            smoothers.append(Smoother.of(outer))
            return lambda layer: self._layer(smoothers[0].layer(layer), next(layers))

        try:
            found = load_weights(folder, dtype, torch.device("cpu"), context, each)
            found = smoothers[0].head(found)
            head = self._rounded(found.head)
            self._save("outer", {"norm": found.norm, **_named("head", head)})
            self._finish()
        finally:
            if self._fresh is not None:
                shutil.rmtree(self._fresh, ignore_errors=True)
        return replace(found, head=self._pack(head))

    def _layer(self, layer: Layer, index: int) -> Layer:
        rounded = {name: self._rounded(getattr(layer, name)) for name in MAPS}
        norms = {name: each for name in NORMS if (each := getattr(layer, name)) is not None}
        maps = [_named(name, each) for name, each in rounded.items()]
        self._save(f"layer-{index:03d}", norms | {k: v for each in maps for k, v in each.items()})
        qkv, out, gate_up, down = (self._pack(rounded[name]) for name in MAPS)
        return replace(layer, qkv=qkv, out=out, gate_up=gate_up, down=down)

    @staticmethod
    def _rounded(linear: Linear) -> Rounded:
        assert isinstance(linear, Dense)  # as it was read
        return Rounded.of(linear)

    def _save(self, name: str, tensors: Mapping[str, Tensor]) -> None:
        if self._fresh is None:
            return
        try:
            self._fresh.mkdir(exist_ok=True)
            save_file({key: each.contiguous() for key, each in tensors.items()}, self._fresh / name)
        except (OSError, SafetensorError) as error:
            self._give_up(error)

    def _finish(self) -> None:
        if self._fresh is None:
            return
        try:
            (self._fresh / "made-of").write_text(self._kept.source, encoding="utf-8")
            shutil.rmtree(self._kept.place, ignore_errors=True)
            self._fresh.rename(self._kept.place)
        except OSError as error:
            self._give_up(error)

    def _give_up(self, error: Exception) -> None:
        log.warning("int8 weights are made again at the next load, they cannot be kept: %s", error)
        if self._fresh is not None:
            shutil.rmtree(self._fresh, ignore_errors=True)
        self._fresh = None


def _named(name: str, rounded: Rounded) -> dict[str, Tensor]:
    found = {f"{name}.levels": rounded.levels, f"{name}.scale": rounded.scale}
    return found if rounded.bias is None else {**found, f"{name}.bias": rounded.bias}


def _of(tensors: Mapping[str, Tensor], name: str) -> Rounded:
    return Rounded(tensors[f"{name}.levels"], tensors[f"{name}.scale"], tensors.get(f"{name}.bias"))
