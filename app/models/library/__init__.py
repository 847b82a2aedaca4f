"""Models on this machine: ours, imported ones, and those that other programs have."""
