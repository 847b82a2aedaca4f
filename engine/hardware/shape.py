"""ModelShape: the numbers of a config that fix how much memory a model takes."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from engine.errors import ModelUnusable

_EXPERTS = ("num_local_experts", "num_experts", "n_routed_experts")
_TRUE_WINDOW = "use_sliding_window"


@dataclass(frozen=True, slots=True)
class ModelShape:
    """Widths and counts of one model; a dense model has no experts."""

    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    feed_forward: int  # of one expert, where there are experts
    vocab: int
    context: int  # longest that it was made for
    tied: bool = False  # the head is the embedding
    experts: int = 0
    cached: int | None = None  # numbers that a token leaves in all caches, where layers differ
    state: int = 0  # bytes of a conversation's running state; 0: no layer keeps one
    rollback: int = 0  # rows behind which that state is kept, too

    @property
    def dense(self) -> bool:
        """Whether every token reads every weight."""
        return self.experts == 0

    @property
    def kv_values(self) -> int:
        """Numbers that one token leaves in the caches of all layers."""
        if self.cached is not None:
            return self.cached
        return 2 * self.layers * self.kv_heads * self.head_dim

    @property
    def attention(self) -> int:
        """Weights of one layer's four attention maps."""
        return self.hidden * self.head_dim * 2 * (self.heads + self.kv_heads)


def shape_of(config: Mapping[str, Any], place: str) -> ModelShape:
    """The shape that a Hugging Face config.json gives; raises ModelUnusable."""
    text = config.get("text_config", config)
    try:
        heads = _number(text, "num_attention_heads")
        hidden = _number(text, "hidden_size")
        context = _number(text, "max_position_embeddings")
        window = text.get("sliding_window")
        if window and text.get(_TRUE_WINDOW, True):
            context = min(context, int(window))
        experts = next((int(text[key]) for key in _EXPERTS if text.get(key)), 0)
        wide = "moe_intermediate_size" if experts else "intermediate_size"
        return ModelShape(
            hidden=hidden,
            layers=_number(text, "num_hidden_layers"),
            heads=heads,
            kv_heads=int(text.get("num_key_value_heads") or heads),
            head_dim=int(text.get("head_dim") or hidden // heads),
            feed_forward=_number(text, wide if wide in text else "intermediate_size"),
            vocab=_number(text, "vocab_size"),
            context=context,
            tied=bool(config.get("tie_word_embeddings", text.get("tie_word_embeddings", False))),
            experts=experts,
        )
    except (TypeError, ValueError, KeyError, AttributeError, OverflowError) as error:
        raise ModelUnusable(f"{place}: config.json does not give {error}") from error


def _number(config: Mapping[str, Any], key: str) -> int:
    found = int(config[key])
    if not 0 < found < 2**31:
        raise ValueError(f"a sensible {key}: it says {found}")
    return found
