"""The recipe of the bundled models: data, network, training loop, report."""
