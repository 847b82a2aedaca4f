"""Every kernel compiles for a CUDA device; fused operations give the results of the torch code."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from engine.decoder import decoder
from engine.decoder.decoder import Rotary
from engine.models.own.pass_kernels import placed

DTYPES = (torch.float32, torch.bfloat16, torch.float16)


def normal(device, dtype, *shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(len(shape))).to(
        device, dtype
    )


def near(found, expected):
    """Within one rounding of the format: sums and exponentials may differ in their last digit."""
    eps = torch.finfo(expected.dtype).eps
    torch.testing.assert_close(found, expected, atol=4 * eps, rtol=2 * eps)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(1, 16), (5, 40), (3, 2, 320)])
def test_norm(device, dtype, shape):
    from engine.kernels.fused_ops import rms_norm

    x, weight = normal(device, dtype, *shape), 1 + normal(device, dtype, shape[-1]) / 8
    near(rms_norm(x, weight, 1e-5), decoder.rms_norm(x, weight, 1e-5))


def test_norm_of_heads_that_lie_among_others(device):
    from engine.kernels.fused_ops import rms_norm

    heads = normal(device, torch.float32, 3, 8, 16)[:, 2:5]
    weight = normal(device, torch.float32, 16)
    near(rms_norm(heads, weight, 1e-5), decoder.rms_norm(heads, weight, 1e-5))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("rows", "width"), [(1, 24), (4, 1300)])
def test_gate(device, dtype, rows, width):
    from engine.kernels.fused_ops import gated

    x = 3 * normal(device, dtype, rows, 2 * width)
    near(gated(x), decoder.gated(x))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("turning", [0, 8, 16])  # not at all, partly (Phi), wholly
@pytest.mark.parametrize("rows", [1, 5])
def test_queries_are_rotated_and_keys_and_values_lie_in_the_cache(device, dtype, turning, rows):
    from engine.kernels.fused_ops import turned_into_cache

    fused = normal(device, dtype, rows, 4 + 2 * 2, 16)
    heads = fused[:, :4], fused[:, 4:6], fused[:, 6:]
    table = Rotary.table(10_000.0 ** -(torch.arange(0, turning, 2) / 16), 99)
    angles = table.at(torch.arange(rows) + 40).to(torch.device(device), dtype)
    turns = (angles.cos, angles.sin) if turning else None
    start = torch.tensor([3], dtype=torch.int32, device=device)
    caches = [[torch.zeros(2, 12, 16, dtype=dtype, device=device) for _ in "kv"] for _ in range(2)]
    found = turned_into_cache(heads, turns, tuple(caches[0]), start)
    expected = placed(heads, turns, tuple(caches[1]), start)
    near(found, expected)
    for own, reference in zip(*caches, strict=True):
        near(own, reference)
        assert not own[:, :3].any()
        assert not own[:, 3 + rows :].any()


CAPABILITY = "80"  # the oldest that multiplies bfloat16


def test_every_kernel_compiles_without_a_warning(tmp_path):
    pytest.importorskip("triton", reason="triton is not installed: pip install 'slipstream[test]'")
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment |= {"TRITON_CACHE_DIR": str(tmp_path), "PYTHONPATH": str(Path.cwd())}
    command = [sys.executable, "-m", "tests.engine.kernels.without_a_device", CAPABILITY]
    found = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=200, check=False
    )
    assert found.returncode == 0, found.stderr[-3000:]
    compiled = {line.split()[0] for line in found.stdout.splitlines()[:-1]}
    assert compiled == {
        "lookup_walk", "chain_statistics", "chain_walk", "tree_probs", "reject_level",
        "traversal_walk", "_attend", "_norm", "_gated", "_turn", "_rates",
    }  # fmt: skip
