"""Where a model runs on this machine, and in which number format."""
