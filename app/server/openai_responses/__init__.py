"""OpenAI's newer protocol: a conversation of items is sent, and items come back; nothing is kept."""
