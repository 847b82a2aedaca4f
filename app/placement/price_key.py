"""A key under which the prices of a model's passes are kept."""

import hashlib
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from app.placement.machine import machine_name
from engine.platform.instructions import instruction_sets
from engine.request import ModelSpec

_LIBRARIES = ("torch", "transformers", "llama-cpp-python")


def price_key(spec: ModelSpec) -> str:
    """A digest that changes with the files' sizes and times, the machine, libraries and settings."""
    place = Path(spec.folder)
    files = [place] if place.is_file() else sorted(place.glob("*.safetensors"))
    states = [(file.name, file.stat().st_size, file.stat().st_mtime_ns) for file in files]
    machine = (machine_name(spec.device, spec.dtype), instruction_sets())
    told = (replace(spec, prices=None), states, machine, [_version(name) for name in _LIBRARIES])
    return hashlib.sha256(repr(told).encode("utf-8", "surrogatepass")).hexdigest()


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""
