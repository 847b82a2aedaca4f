"""Qwen 2 and 2.5: q, k and v have biases."""

from engine.decoder.family import Family

QWEN2 = Family(
    "qwen2",
    stated={"sliding_window": int | None, "use_sliding_window": bool},
    biases=frozenset({"qkv"}),
    gguf="qwen2",
)
