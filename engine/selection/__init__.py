"""How ``auto`` chooses: one estimator of every drafter's speedup, n-gram proposals."""
