"""The local HTTP endpoint: OpenAI-style chat completions over the assistant."""
