"""Phi 3 and 4: q, k and v are stored as one matrix, and so are gate and up."""

from engine.decoder.family import SEPARATE, Family, TensorNames

PHI3 = Family(
    "phi3",
    names=TensorNames(
        maps={**SEPARATE, "qkv": ("self_attn.qkv_proj",), "gate_up": ("mlp.gate_up_proj",)}
    ),
)
