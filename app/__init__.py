"""The product without a screen: conversations, the engine's process, history, the command line."""
