"""Anthropic's protocol: messages of blocks are sent, and one message of blocks comes back."""
