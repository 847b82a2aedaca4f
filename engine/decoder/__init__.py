"""Our own decoder: config, weights, layers, attention, KV cache."""
