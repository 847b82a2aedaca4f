"""Qwen 3: every head of q and k is normed."""

from engine.decoder.family import ATTENTION_BIAS, Family

QWEN3 = Family(
    "qwen3",
    stated={
        "sliding_window": int | None, "use_sliding_window": bool, "head_dim": int,
        "attention_bias": bool,
    },
    head_norms="each",
    bias_fields=ATTENTION_BIAS,
    gguf="qwen3",
)  # fmt: skip
