"""Tests on a CUDA device: ``pytest -m gpu tests/gpu``."""

import pytest
import torch


@pytest.fixture(autouse=True)
def device():
    """The CUDA device; without one the test is skipped with the reason."""
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device: torch finds none")
    pytest.importorskip("triton", reason="triton is not installed")
    return torch.device("cuda")
