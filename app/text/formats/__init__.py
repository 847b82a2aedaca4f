"""Formats: what an answer may look like, from JSON Schema to the engine's grammars."""
