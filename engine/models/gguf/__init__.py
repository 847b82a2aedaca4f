"""GGUF files: read, checked, written, and run by llama.cpp."""
