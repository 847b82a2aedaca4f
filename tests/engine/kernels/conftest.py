"""Where kernels run in these tests: on the CUDA device if there is one, else in Triton's interpreter."""

import pytest
import torch


@pytest.fixture(scope="session")
def device():
    """The device of the kernels' tensors."""
    pytest.importorskip("triton", reason="triton is not installed: pip install 'slipstream[test]'")
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")
