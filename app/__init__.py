"""The product without a screen: assistant, engine process, history, endpoint, command line."""
