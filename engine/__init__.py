"""Tokens in, tokens out: drafting, verification and the models that do both."""
