"""OpenAI's chat and text completion protocol."""
