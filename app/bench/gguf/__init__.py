"""``bench gguf``: GGUF files against llama-cpp-python's own generation."""
