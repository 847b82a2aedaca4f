"""Training of the bundled models and of acceptance heads."""
