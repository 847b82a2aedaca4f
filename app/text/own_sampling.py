"""The sampling that a model's maker recommends: the default where a person chose none.

Where the files recommend nothing, answers are sampled mildly, as other programs do: a small model that
decodes greedily soon says the same again and again.
"""

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from engine.errors import InvalidRequest
from engine.request import RANGES, Penalties, SamplingParams

Own = Mapping[str, float]  # by the names of ``ReplyOptions``; what is missing is not recommended
# Of 10 questions to SmolLM2-135M, greedy and 0.2 brought 4 endless answers, 0.5 and 0.8 one; 0.8 wanders more.
USUAL: Own = {"temperature": 0.5, "top_p": 0.9}
_FOLDER = {
    "temperature": "temperature",
    "top_k": "top_k",
    "top_p": "top_p",
    "min_p": "min_p",
    "repeat": "repetition_penalty",
}
_GGUF = {
    "temperature": "general.sampling.temp",
    "top_k": "general.sampling.top_k",
    "top_p": "general.sampling.top_p",
    "min_p": "general.sampling.min_p",
    "repeat": "general.sampling.penalty_repeat",
}


def of_folder(config: Mapping[str, Any]) -> Own:
    """Out of generation_config.json; greedy where that says not to sample, usual where it says nothing."""
    found = _read(config, _FOLDER)
    if config.get("do_sample") is False:
        repeat = {name: value for name, value in found.items() if name == "repeat"}
        return {"temperature": 0.0, **repeat}
    if config.get("do_sample") is True or set(found) - {"repeat"}:
        return {"temperature": 1.0, **found}
    return {**USUAL, **found}


def of_gguf(metadata: Mapping[str, Any]) -> Own:
    """Out of the metadata of a GGUF file; usual where it names no temperature."""
    found = _read(metadata, _GGUF)
    return found if "temperature" in found else {**USUAL, **found}


def with_own(sampling: SamplingParams, own: Own, unset: Collection[str]) -> SamplingParams:
    """``sampling`` with the model's own values for what is ``unset``."""
    given: dict[str, Any] = {name: own[name] for name in unset if name in own}
    repeat = given.pop("repeat", None)
    if "top_k" in given:
        given["top_k"] = int(given["top_k"])
    changed = replace(sampling, **given)
    if repeat is None:
        return changed
    return replace(changed, penalties=replace(changed.penalties or Penalties(), repeat=repeat))


def _read(config: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, float]:
    """Every number that is in its range."""
    found: dict[str, float] = {}
    for name, key in names.items():
        value = config.get(key)
        if isinstance(value, int | float) and not isinstance(value, bool):
            try:
                RANGES[name].check(name, value)
            except InvalidRequest:
                continue  # damage here costs no model
            found[name] = value
    return found
