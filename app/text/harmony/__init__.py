"""Answers in channels: reasoning, text and calls each have a header, as in OpenAI's gpt-oss."""
