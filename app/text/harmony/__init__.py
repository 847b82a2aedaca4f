"""Channels: answers whose thoughts, text and calls stand each behind a header, as OpenAI's gpt-oss writes them."""
