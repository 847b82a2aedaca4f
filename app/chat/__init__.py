"""The assistant: conversations, the loaded model, running replies."""
