"""Every kernel compiles for a CUDA device, whether or not there is one: the interpreter takes more."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

CAPABILITY = "80"  # the oldest that multiplies bfloat16


def test_every_kernel_compiles_and_nothing_is_warned_of(tmp_path):
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
