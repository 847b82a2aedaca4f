"""Training of acceptance heads."""
