"""What distinguishes one family of decoders from another, as one value."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType, UnionType

Kinds = Mapping[str, type | UnionType]
"""Field of config.json -> its type."""

SEPARATE: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "qkv": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
        "out": ("self_attn.o_proj",),
        "gate_up": ("mlp.gate_proj", "mlp.up_proj"),
        "down": ("mlp.down_proj",),
    }
)
"""Map of a layer -> the stored matrices that it joins, row after row."""

ATTENTION_BIAS: Mapping[str, frozenset[str]] = MappingProxyType(
    {"attention_bias": frozenset({"qkv", "out"})}
)
MLP_BIAS: Mapping[str, frozenset[str]] = MappingProxyType(
    {"mlp_bias": frozenset({"gate_up", "down"})}
)


@dataclass(frozen=True, slots=True)
class TensorNames:
    """A checkpoint's names. Those of a layer, from ``attention_norm`` on, come after its prefix."""

    embedding: str = "model.embed_tokens.weight"
    norm: str = "model.norm.weight"
    head: str = "lm_head.weight"
    layers: str = "model.layers"
    attention_norm: str = "input_layernorm.weight"
    mlp_norm: str = "post_attention_layernorm.weight"
    q_norm: str = "self_attn.q_norm.weight"
    k_norm: str = "self_attn.k_norm.weight"
    maps: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: SEPARATE)

    def layer(self, index: int) -> str:
        """What the names of this layer's tensors begin with."""
        return f"{self.layers}.{index}."

    def parts(self, index: int, name: str) -> tuple[str, ...]:
        """The stored matrices of one map of a layer, without ``.weight`` or ``.bias``."""
        return tuple(self.layer(index) + part for part in self.maps[name])


@dataclass(frozen=True, slots=True)
class Family:
    """One family; the defaults are Llama's."""

    model_type: str  # in config.json
    stated: Kinds | None = None
    """Further fields that every config states; with them the decoder needs no library to read it."""
    names: TensorNames = TensorNames()
    norm_after: bool = False  # a part's output is normed instead of its input
    head_norms: str = ""  # norms of q and k: of "each" head, or over "all" heads at once
    biases: frozenset[str] = frozenset()  # maps that always add a bias
    bias_fields: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Field of config.json -> the maps that add a bias where it is true."""
    rotated_layers: str = ""  # field that says of every layer whether it uses positions; "": all do
    gguf: str = ""  # llama.cpp's name; "": it cannot be exported
    gguf_neighbours: bool = False  # llama.cpp rotates neighbours, transformers halves
