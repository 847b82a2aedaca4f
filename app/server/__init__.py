"""The local HTTP endpoint: OpenAI's and Anthropic's protocols."""
