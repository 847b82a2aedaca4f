"""The browser page, in Gradio; it holds ids and texts, never the engine's objects."""
