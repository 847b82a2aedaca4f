"""Mistral: a Llama that may have a sliding window."""

from engine.decoder.family import Family

MISTRAL = Family(
    "mistral", stated={"sliding_window": int | None}, gguf="llama", gguf_neighbours=True
)
