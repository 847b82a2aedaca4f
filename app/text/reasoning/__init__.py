"""Reasoning: its tags, and models that use other marks for it."""
