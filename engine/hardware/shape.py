"""ModelShape: the numbers of a config that fix how much memory a model takes."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from engine.errors import ModelUnusable

_EXPERTS = ("num_local_experts", "num_experts", "n_routed_experts")
_TRUE_WINDOW = "use_sliding_window"


@dataclass(frozen=True, slots=True)
class LayerKinds:
    """How layers differ from one another, for a plan before a download; 0 is as in any transformer."""

    full: int = 0  # layers that see every token, evenly spread; 0: all of them
    window: int = 0  # tokens that the other layers see; 0: these keep a running state
    full_kv_heads: int = 0  # of layers that see every token
    full_head_dim: int = 0
    one_map: bool = False  # such layers take their keys as values
    shared: int = 0  # last layers, which read the caches of earlier ones
    shared_feed_forward: int = 0
    gate: bool = False  # on what each query head reads
    taps: int = 0  # inputs that the convolution of a running state sees
    sums: int = 0  # heads of its sum over all tokens; 0: the convolution is all of it
    sum_keys: int = 0  # heads of keys in that sum
    sum_dim: int = 0  # width of a head
    used: int = 0  # experts that a token goes through
    beside: int = 0  # width of a feed-forward that every token takes in addition to its experts
    dense: int = 0  # first layers, which have no experts
    dense_feed_forward: int = 0
    per_layer: int = 0  # width of an embedding of each layer's own
    bias: bool = False  # on every map
    drafting: int = 0  # layers in the file that only draft


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
    kinds: LayerKinds | None = None  # of the catalogue; None: all layers are alike
    tied: bool = False  # the head is the embedding
    experts: int = 0
    cached: int | None = None  # numbers that a token leaves in all caches, where layers differ
    window: int = 0  # tokens that some layers see; 0: all layers see all
    narrow: int = 0  # of ``cached``, the numbers in the caches of those layers
    used: int = 0  # experts that a token goes through; 0: not known
    state: int = 0  # bytes of a conversation's running state; 0: no layer keeps one
    layer_state: int = 0  # of that, what one layer sums over all tokens
    mixed: int = 0  # numbers that a row of a pass takes in a layer that keeps one
    rollback: int = 0  # latest rows after which that state is kept, too

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


def shape_of(config: Mapping[str, Any], place: str) -> ModelShape:
    """The shape that a Hugging Face config.json gives; raises ModelUnusable."""
    inner = config.get("text_config")
    text = inner if isinstance(inner, Mapping) else config
    try:
        heads = _number(text, "num_attention_heads")
        hidden = _number(text, "hidden_size")
        context = _number(text, "max_position_embeddings")
        window = text.get("sliding_window")
        if window and text.get(_TRUE_WINDOW, True):
            context = min(context, _number(text, "sliding_window"))
        experts = next((_number(text, key) for key in _EXPERTS if text.get(key)), 0)
        wide = "moe_intermediate_size" if experts else "intermediate_size"
        return ModelShape(
            hidden=hidden,
            layers=_number(text, "num_hidden_layers"),
            heads=heads,
            kv_heads=_number(text, "num_key_value_heads", heads),
            head_dim=_number(text, "head_dim", hidden // heads),
            feed_forward=_number(text, wide if wide in text else "intermediate_size"),
            vocab=_number(text, "vocab_size"),
            context=context,
            tied=bool(config.get("tie_word_embeddings", text.get("tie_word_embeddings", False))),
            experts=experts,
        )
    except (ValueError, KeyError) as error:
        raise ModelUnusable(
            f"{place}: config.json does not give {error}; get the model again"
        ) from error


def _number(config: Mapping[str, Any], key: str, usual: int = 0) -> int:
    """``usual`` is what holds where the field is empty or not there; 0: it has to be there."""
    found = (config.get(key) or usual) if usual else config[key]
    if not isinstance(found, int | float) or not 0 < found < 2**31:
        raise ValueError(f"a sensible {key}: it says {found!r}")
    return int(found)
