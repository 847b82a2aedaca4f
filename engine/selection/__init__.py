"""How ``auto`` chooses: statistics of every drafter, exploration, n-gram proposals."""
