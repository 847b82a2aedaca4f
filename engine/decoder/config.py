"""config.json of a checkpoint: read, checked against unsafe values, matched to a backend."""

import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import NoneType
from typing import Any

from engine.decoder.families import FAMILIES
from engine.errors import ModelUnusable

INDEX, SINGLE = "model.safetensors.index.json", "model.safetensors"
ROPE_KINDS = ("default", "linear", "dynamic", "llama3", "yarn", "longrope")
ACTIVATIONS = ("silu", "swish")

DEEPEST = 32  # levels of fields; honest configs have four
LARGEST_FILE = 1 << 24  # bytes; a config.json has a few thousand
LARGEST = {  # by field, far above every existing model; larger values would only exhaust memory
    "hidden_size": 1 << 18,
    "num_hidden_layers": 1 << 10,
    "num_attention_heads": 1 << 12,
    "num_key_value_heads": 1 << 12,
    "head_dim": 1 << 13,
    "intermediate_size": 1 << 22,
    "vocab_size": 1 << 24,
    "max_position_embeddings": 1 << 28,
    "sliding_window": 1 << 28,
}
POSITIVE = ("rms_norm_eps", "layer_norm_eps", "layer_norm_epsilon", "rope_theta")
_KINDS: tuple[tuple[str, tuple[type, ...], str], ...] = (  # of fields, as JSON has them
    *((name, (int, NoneType), "whole number") for name in LARGEST),
    *((name, (int, float, NoneType), "number") for name in POSITIVE),
    ("tie_word_embeddings", (bool,), "true or false"),
    ("hidden_act", (str,), "name"),
)


def read_config(folder: Path) -> dict[str, Any]:
    """The fields of ``folder``'s config.json; raises ModelUnusable for one that is not safe to use."""
    config = read_fields(folder / "config.json")
    check_config(str(folder), config)
    return config


def check_config(place: str, config: dict[str, Any]) -> None:
    """Raises ModelUnusable for a config that is not safe to use; ``place`` is where it is from."""
    kind = config.get("model_type")
    if not isinstance(kind, str) or not kind:
        raise ModelUnusable(f"{place}: config.json names no model_type; download the model again")
    _check_depth(place, config)
    if kind in FAMILIES:
        _check_numbers(place, config)
    for part in _parts(config):
        _check_sizes(place, part)
        _check_code(place, part, kind)
    if method := quantisation(config):
        raise ModelUnusable(
            f"{place}: the weights are stored quantised ({method}), which is not supported; get "
            "the full model and ask for int8 weights, or a GGUF file"
        )


def backend_for(place: Path) -> str:
    """Which target runs a folder: ``torch`` for families of the own decoder, else ``hf``.

    A file is ``llama_cpp``'s, whatever its name: other programs store GGUF under a digest. Reads
    config.json only. A folder whose config cannot be read gets ``torch``, whose loader says what is
    wrong with it.
    """
    if place.is_file() or (place.suffix == ".gguf" and not place.is_dir()):
        return "llama_cpp"
    try:
        config = read_fields(place / "config.json")
    except ModelUnusable:
        return "torch"
    return "hf" if foreign(config) else "torch"


def foreign(config: Mapping[str, Any]) -> str:
    """Why the own decoder cannot run a model of this config; empty when it can."""
    kind = config.get("model_type")
    if kind not in FAMILIES:
        return f"family {kind!r} is not supported; supported are {', '.join(FAMILIES)}"
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    scaling = rope.get("rope_type", rope.get("type", "default")) if isinstance(rope, dict) else rope
    if scaling not in (*ROPE_KINDS, "su"):  # su: the first name of longrope
        return f"rotary scaling {scaling!r} is not supported; supported are {', '.join(ROPE_KINDS)}"
    activation = config.get("hidden_act", "silu")
    if activation not in ACTIVATIONS:
        return f"activation {activation!r} is not supported; supported is silu"
    return ""


def check_family(place: str, config: Mapping[str, Any]) -> None:
    """Raises ModelUnusable for a family of which nothing here generates text.

    It imports a part of transformers, whose loader says the same much later.
    """
    if not foreign(config):
        return
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    if config.get("model_type") not in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES:
        raise ModelUnusable(
            f"{place}: the transformers library here has no family {config.get('model_type')!r} that "
            "generates text; choose another model, or update Slipstream for a newer one"
        )


def quantisation(config: Mapping[str, Any]) -> str:
    """The method by which the stored weights were quantised; empty for plain ones."""
    found = config.get("quantization_config")
    mlx = config.get("quantization")
    if isinstance(mlx, dict) and mlx.get("bits"):  # MLX's converter writes both
        return "MLX, for Macs"
    if not found:
        return ""
    return str(found.get("quant_method", "unnamed")) if isinstance(found, dict) else "unnamed"


def read_fields(file: Path) -> dict[str, Any]:
    """The fields of a JSON file of a model; raises ModelUnusable with one sentence."""
    try:
        if file.stat().st_size > LARGEST_FILE:
            raise ModelUnusable(f"{file} has {file.stat().st_size} bytes; a config has thousands")
        found = json.loads(file.read_text(encoding="utf-8-sig"))
    except (OSError, ValueError, RecursionError) as error:
        raise ModelUnusable(f"{file} cannot be read ({error}); download the model again") from error
    if not isinstance(found, dict):
        raise ModelUnusable(f"{file} holds no fields; download the model again")
    return found


def read_index(folder: Path) -> dict[str, str]:
    """Tensor name -> file name; empty for a folder with a single file. Raises ModelUnusable."""
    index = folder / INDEX
    if not index.exists():
        return {}
    found = read_fields(index).get("weight_map")
    if not isinstance(found, dict) or not found:
        raise ModelUnusable(f"{index} has no weight_map; download the model again")
    for file in found.values():
        if (
            not isinstance(file, str)
            or file in ("", "..")
            or Path(file).name != file
            or "\\" in file
        ):
            raise ModelUnusable(f"{index}: {file!r} points outside the model's folder")
        if not file.endswith(".safetensors"):
            raise ModelUnusable(f"{index}: {file!r} is no safetensors file")
    return found


def weight_files(folder: Path) -> list[Path]:
    """The files that are loaded, which need not be there; raises ModelUnusable.

    Others may lie beside them: the same weights in their maker's own form, or what a Mac writes beside
    each file on other disks (``._model.safetensors``).
    """
    return [folder / name for name in sorted({*read_index(folder).values()} or {SINGLE})]


def _parts(config: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The config and those inside it (text, vision, rotary parameters)."""
    yield config
    for value in config.values():
        if isinstance(value, dict):
            yield from _parts(value)


def _check_depth(place: str, config: dict[str, Any]) -> None:
    """What reads a config goes down as deep as it is, in our code and in the library's."""
    level: list[object] = [config]
    for _ in range(DEEPEST):
        level = [inner for outer in level for inner in _inside(outer)]
    if level:
        raise ModelUnusable(
            f"{place}: config.json nests its fields more than {DEEPEST} deep; download the model again"
        )


def _inside(value: object) -> Iterator[object]:
    if isinstance(value, dict):
        yield from value.values()
    elif isinstance(value, list):
        yield from value


def _check_numbers(place: str, config: Mapping[str, Any]) -> None:
    """Only for the own decoder's families; others have lists of sizes, one for each layer."""
    ropes = (config.get(name) for name in ("rope_parameters", "rope_scaling"))
    for part in (config, *(rope for rope in ropes if isinstance(rope, dict))):
        for name, kinds, said in _KINDS:
            value = part.get(name)
            if name in part and type(value) not in kinds:
                raise ModelUnusable(
                    f"{place}: config.json cannot be used: {name} is {value!r}, which is no {said}; "
                    "download the model again"
                )


def _check_sizes(place: str, part: Mapping[str, Any]) -> None:
    for name, largest in LARGEST.items():
        value = part.get(name)
        if isinstance(value, (int, float)) and not 1 <= value <= largest:
            raise ModelUnusable(
                f"{place}: config.json says {name} is {value}; it must lie in 1..{largest}"
            )
    for name in POSITIVE:
        value = part.get(name)
        if isinstance(value, (int, float)) and not (math.isfinite(value) and value > 0):
            raise ModelUnusable(f"{place}: config.json says {name} is {value}; it must be positive")


def _check_code(place: str, part: Mapping[str, Any], kind: str) -> None:
    """Refuse what would run or fetch code that is not of the transformers library itself.

    Checkpoints that are older than their family's place in the library still name the files that
    they once needed (Phi-3); those are never read, and pass when they name the same classes.
    """
    for name, value in part.items():
        named = name.endswith(("_implementation", "_internal"))
        if named and isinstance(value, str) and ("/" in value or ":" in value):
            raise ModelUnusable(
                f"{place}: config.json wants code from {value!r} ({name}); code of a model's own "
                "is never run"
            )
    listed = part.get("auto_map") or {}
    wanted = listed if isinstance(listed, dict) else {"AutoModelForCausalLM": str(listed)}
    for name in ("AutoConfig", "AutoModelForCausalLM"):
        if name in wanted and not _is_library_class(name, str(wanted[name]), kind):
            raise ModelUnusable(
                f"{place}: the model needs code of its own ({wanted[name]}, in auto_map), which "
                "is never run; choose a model whose family the transformers library knows"
            )


def _is_library_class(auto: str, path: str, kind: str) -> bool:
    from transformers import AutoConfig
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    named = path.rsplit(".", 1)[-1]
    if auto != "AutoConfig":
        return bool(named == MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.get(kind))
    try:
        return named == type(AutoConfig.for_model(kind)).__name__
    except ValueError:  # a family that the library does not know
        return False
