"""From a checked config to the decoder's numbers: shapes, windows, rotary frequencies."""

from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace, UnionType
from typing import Any

import torch

from engine.decoder.config import foreign, read_config
from engine.decoder.decoder import Architecture, Rotary
from engine.errors import ModelUnusable

LONGEST = 1 << 18  # tokens; the rotary table of more would take memory that no cache would leave

Kinds = dict[str, type | UnionType]

STATED: Kinds = {  # what is read of every config
    "hidden_size": int, "num_hidden_layers": int, "num_attention_heads": int,
    "num_key_value_heads": int, "intermediate_size": int, "vocab_size": int,
    "max_position_embeddings": int, "rms_norm_eps": float, "hidden_act": str,
    "tie_word_embeddings": bool,
}  # fmt: skip
ALSO: dict[str, Kinds] = {  # and of a family's, whose default the library knows
    "llama": {"attention_bias": bool, "mlp_bias": bool},
    "mistral": {"sliding_window": int | None},
    "qwen2": {"sliding_window": int | None, "use_sliding_window": bool},
    "qwen3": {
        "sliding_window": int | None, "use_sliding_window": bool, "head_dim": int,
        "attention_bias": bool,
    },
}  # fmt: skip
# follows from others where it is absent
OPTIONAL: Kinds = {"head_dim": int | None, "sliding_window": int | None}


def decoder_config(folder: Path) -> Any:
    """The config of a folder that the own decoder runs; raises ModelUnusable.

    The library, which takes two seconds of a start to import, is asked only where something is left
    for it to fill in, to translate or to refuse.
    """
    fields = read_config(folder)
    if reason := foreign(fields):
        raise ModelUnusable(f"{folder}: {reason}")
    return complete(fields) or library_config(folder)


def complete(fields: Mapping[str, Any]) -> SimpleNamespace | None:
    """The library's config of ``fields`` that say all that is read of their family; else None."""
    also, rope = ALSO.get(fields["model_type"]), _plain_rope(fields)
    if also is None or rope is None:
        return None
    optional = {name: kind for name, kind in OPTIONAL.items() if name in fields}
    asked = (optional | STATED | also).items()
    if any(name not in fields or not isinstance(fields[name], kind) for name, kind in asked):
        return None
    return SimpleNamespace(**{**fields, "rope_parameters": rope})


def _plain_rope(fields: Mapping[str, Any]) -> dict[str, Any] | None:
    """Rotary parameters of a config without scaling, wherever its writer put them."""
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
    from huggingface_hub.errors import StrictDataclassError
    from transformers import AutoConfig

    try:
        return AutoConfig.from_pretrained(
            str(folder), local_files_only=True, trust_remote_code=False
        )
    except (OSError, ValueError, KeyError, TypeError, StrictDataclassError) as error:
        said = " ".join(str(error).split())
        raise ModelUnusable(f"{folder}: config.json cannot be used: {said}") from error


def architecture(config: Any, wanted: int | None = None) -> Architecture:
    """The decoder's numbers; ``wanted`` is the context asked for, in tokens.

    Inside its sliding window such a model is a full-attention model, so the context ends where the
    window does. A model with long-range rotary factors (Phi-3) has one set for its first context
    and one for all longer ones; keys of the two do not mix, so the first is used unless
    more is asked for.
    """
    heads, kv_heads = config.num_attention_heads, config.num_key_value_heads
    if heads % kv_heads:
        raise ModelUnusable(
            f"config.json says {heads} attention heads share {kv_heads} key heads; the first must "
            "be a multiple of the second"
        )
    layers = config.num_hidden_layers
    rotates = getattr(config, "no_rope_layers", None) or [True] * layers
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
        norm_after=config.model_type == "olmo2",
        no_rope=frozenset(i for i in range(layers) if not rotates[i]),
        head_norms=config.model_type in ("qwen3", "olmo2"),
        biases=_biases(config),
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

    # the length chooses between the two sets of longrope, and means nothing to the others
    try:
        inv_freq, scale = ROPE_INIT_FUNCTIONS[kind](config, torch.device("cpu"), arch.context)
    except (KeyError, TypeError, RuntimeError) as error:
        raise ModelUnusable(
            f"config.json has no usable numbers for rotary scaling {kind!r}: {error}"
        ) from error
    return Rotary.table(inv_freq, arch.context, float(scale))


def _biases(config: Any) -> frozenset[str]:
    if config.model_type == "qwen2":
        return frozenset({"qkv"})
    attention = {"qkv", "o"} if getattr(config, "attention_bias", False) else set()
    mlp = {"gate_up", "down"} if getattr(config, "mlp_bias", False) else set()
    return frozenset(attention | mlp)


def _context(config: Any, wanted: int | None) -> int:
    limits = [config.max_position_embeddings, LONGEST, *([] if wanted is None else [wanted])]
    window = getattr(config, "sliding_window", None)
    if window and getattr(config, "use_sliding_window", True):
        limits.append(window)
    parameters = config.rope_parameters
    if parameters.get("rope_type") == "longrope" and wanted is None:
        limits.append(parameters.get("original_max_position_embeddings", limits[0]))
    return int(min(limits))
