"""Rows of logits for tests of large vocabularies."""

import numpy as np
import torch


def peaked_row(size: int, seed: int, peaks: int = 10) -> torch.Tensor:
    """Logits [V] with a few peaks, as models have. Float64, so that rounding makes no ties."""
    random = np.random.default_rng(seed)
    logits = 2 * random.standard_normal(size)
    logits[random.integers(0, size, min(peaks, size))] += np.linspace(12, 3, min(peaks, size))
    return torch.from_numpy(logits)
