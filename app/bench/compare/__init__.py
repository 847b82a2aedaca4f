"""Comparing speed modes with plain decoding on the loaded model: one prompt, or a whole benchmark."""
