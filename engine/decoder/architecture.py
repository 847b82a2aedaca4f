"""From a checked config to the decoder's numbers: shapes, windows, rotary frequencies."""

from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

from engine.decoder.config import foreign, read_config
from engine.decoder.decoder import Architecture, Rotary
from engine.decoder.families import FAMILIES
from engine.decoder.family import Family, Kinds
from engine.errors import ModelUnusable

LONGEST = 1 << 18  # tokens; a longer rotary table would take the memory of the cache

STATED: Kinds = {  # what is read of every config
    "hidden_size": int, "num_hidden_layers": int, "num_attention_heads": int,
    "num_key_value_heads": int, "intermediate_size": int, "vocab_size": int,
    "max_position_embeddings": int, "rms_norm_eps": float, "hidden_act": str,
    "tie_word_embeddings": bool,
}  # fmt: skip
OPTIONAL: Kinds = {"head_dim": int | None, "sliding_window": int | None}  # may be absent


def decoder_config(folder: Path) -> Any:
    """The config of a folder that the own decoder runs; raises ModelUnusable.

    transformers takes two seconds to import: it is used only where fields are missing or have to
    be translated.
    """
    fields = read_config(folder)
    if reason := foreign(fields):
        raise ModelUnusable(f"{folder}: {reason}")
    return complete(fields) or library_config(folder)


def complete(fields: Mapping[str, Any]) -> SimpleNamespace | None:
    """The config if ``fields`` state all that is read of their family; else None."""
    stated, rope = FAMILIES[fields["model_type"]].stated, _plain_rope(fields)
    if stated is None or rope is None:
        return None
    optional = {name: kind for name, kind in OPTIONAL.items() if name in fields}
    needed = {**optional, **STATED, **stated}.items()
    if any(name not in fields or not isinstance(fields[name], kind) for name, kind in needed):
        return None
    return SimpleNamespace(**{**fields, "rope_parameters": rope})


def _plain_rope(fields: Mapping[str, Any]) -> dict[str, Any] | None:
    """Rotary parameters of a config without scaling, in the old or the new field; else None."""
    if fields.get("rope_scaling") is not None or "partial_rotary_factor" in fields:
        return None
    stated = fields.get("rope_parameters") or {
        "rope_type": "default",
        "rope_theta": fields.get("rope_theta"),
    }
    usual = set(stated) == {"rope_type", "rope_theta"} and stated["rope_type"] == "default"
    return stated if usual and isinstance(stated["rope_theta"], int | float) else None


def library_config(folder: Path) -> Any:
    """The config with the library's defaults filled in; raises ModelUnusable."""
    from transformers import AutoConfig

    try:
        return AutoConfig.from_pretrained(
            str(folder), local_files_only=True, trust_remote_code=False
        )
    except Exception as error:  # of every kind, by what a field holds
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise ModelUnusable(f"{folder}: config.json cannot be used: {reason}") from error


def architecture(config: Any, wanted: int | None = None) -> Architecture:
    """The decoder's numbers; ``wanted``: the longest context needed, in tokens. Raises ModelUnusable.

    The context ends where a sliding window does: up to there attention is full. A model with
    long-range rotary factors (Phi-3) has one set for its first context and one for longer ones; keys
    of the two do not mix, so the first set is used unless more is needed.
    """
    family = FAMILIES[config.model_type]
    heads, kv_heads = config.num_attention_heads, config.num_key_value_heads
    if heads % kv_heads:
        raise ModelUnusable(
            f"config.json says {heads} attention heads share {kv_heads} key heads; the first must "
            "be a multiple of the second"
        )
    layers = config.num_hidden_layers
    rotates = getattr(config, family.rotated_layers or "-", None) or [True] * layers
    return Architecture(
        hidden=config.hidden_size,
        layers=layers,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=getattr(config, "head_dim", None) or config.hidden_size // heads,
        feed_forward=config.intermediate_size,
        vocab=config.vocab_size,
        context=_context(config, wanted),
        norm_eps=config.rms_norm_eps,
        norm_after=family.norm_after,
        no_rope=frozenset(i for i in range(layers) if not rotates[i]),
        biases=_biases(config, family),
    )


def rotary_table(config: Any, arch: Architecture) -> Rotary:
    """Angles of every position of the context, float32."""
    parameters: Mapping[str, Any] = config.rope_parameters
    kind = parameters.get("rope_type", "default")
    if kind in ("default", "dynamic"):  # dynamic changes nothing inside the model's own context
        width = int(arch.head_dim * parameters.get("partial_rotary_factor", 1.0))
        exponent = torch.arange(0, width, 2).float() / width
        return Rotary.table(parameters["rope_theta"] ** -exponent, arch.context)
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    # the length chooses between the two sets of longrope; other kinds ignore it
    try:
        inv_freq, scale = ROPE_INIT_FUNCTIONS[kind](config, torch.device("cpu"), arch.context)
    except Exception as error:  # of every kind, by what is missing or no number
        raise ModelUnusable(
            f"config.json has no usable numbers for rotary scaling {kind!r}: {error}"
        ) from error
    return Rotary.table(inv_freq, arch.context, float(scale))


def _biases(config: Any, family: Family) -> frozenset[str]:
    added = (maps for name, maps in family.bias_fields.items() if getattr(config, name, False))
    return family.biases.union(*added)


def _context(config: Any, wanted: int | None) -> int:
    limits = [config.max_position_embeddings, LONGEST, *([] if wanted is None else [wanted])]
    window = getattr(config, "sliding_window", None)
    if window and getattr(config, "use_sliding_window", True):
        limits.append(window)
    parameters = config.rope_parameters
    if parameters.get("rope_type") == "longrope" and wanted is None:
        limits.append(parameters.get("original_max_position_embeddings", limits[0]))
    return int(min(limits))
