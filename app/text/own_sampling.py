"""How a model's makers want it sampled: generation_config.json, or the metadata of a GGUF file."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from app.text.template import read_json
from engine.errors import ModelUnusable
from engine.models.gguf.header import read_header

FILE = "generation_config.json"
# Our name -> that of a folder, that of a GGUF file, the least and the largest value that makes sense
NAMES = {
    "temperature": ("temperature", "general.sampling.temp", 0.0, 2.0),
    "top_p": ("top_p", "general.sampling.top_p", 0.01, 1.0),
    "top_k": ("top_k", "general.sampling.top_k", 0, 10_000),
    "min_p": ("min_p", "general.sampling.min_p", 0.0, 1.0),
    "repeat": ("repetition_penalty", "general.sampling.penalty_repeat", 0.5, 2.0),
}


def own_sampling(place: Path) -> dict[str, float]:
    """What the files of a folder or GGUF file say; nothing where they say nothing, or no sense."""
    try:
        config = read_json((place.parent if place.is_file() else place) / FILE)
        found = _values({name: config.get(one) for name, (one, *_) in NAMES.items()})
        if not found and place.is_file():
            metadata = read_header(place).metadata
            found = _values({name: metadata.get(one) for name, (_, one, *_) in NAMES.items()})
    except ModelUnusable:  # loading the model has said why
        return {}
    return {} if config.get("do_sample") is False else found


def _values(found: Mapping[str, Any]) -> dict[str, float]:
    return {name: value for name, value in found.items() if _sensible(name, value)}


def _sensible(name: str, value: object) -> bool:
    least, most = NAMES[name][2:]
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number and least <= value <= most and (name != "top_k" or isinstance(value, int))
