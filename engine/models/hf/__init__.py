"""Targets that run through the transformers library."""
