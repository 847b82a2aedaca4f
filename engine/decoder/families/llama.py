"""Llama 2 and 3, SmolLM2 and others of the same shape."""

from engine.decoder.family import ATTENTION_BIAS, MLP_BIAS, Family

LLAMA = Family(
    "llama",
    stated={"attention_bias": bool, "mlp_bias": bool},
    bias_fields={**ATTENTION_BIAS, **MLP_BIAS},
    gguf="llama",
    gguf_neighbours=True,
)
