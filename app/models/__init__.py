"""Models: catalogue, hub, downloads, and what is installed."""
