"""Engines on other machines, or in other programs, that answer over OpenAI's protocol."""
