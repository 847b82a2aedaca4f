"""Triton twins of what the torch code defines: verification and tree attention."""
