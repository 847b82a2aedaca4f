"""A model larger than memory: what streaming it from disk reaches on this machine."""
