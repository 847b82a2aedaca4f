"""The engine's own process, and the messages to it and from it."""
