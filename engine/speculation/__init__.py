"""Decoding as pure functions: draft trees, distributions, sampling and verification."""
