"""The GPU report runs from end to end without a GPU, and says so when asked for the real thing."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch


def run(*arguments, cwd):
    environment = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": str(Path.cwd())}
    command = [sys.executable, "-m", "engine.hardware.gpu_report", *arguments]
    return subprocess.run(
        command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=200, check=False
    )


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device here")
def test_without_a_device_it_says_so_in_one_sentence(tmp_path):
    found = run(cwd=tmp_path)
    assert found.returncode == 2
    assert found.stderr.startswith("no CUDA device")
    assert len(found.stderr.splitlines()) == 1


def test_a_small_report_is_whole(tmp_path):
    pytest.importorskip("triton", reason="triton is not installed: pip install 'slipstream[test]'")
    found = run("--smoke", "--json", "out.json", cwd=tmp_path)
    assert found.returncode == 0, found.stderr
    document = json.loads((tmp_path / "out.json").read_text())
    rows = {row["name"]: row for row in document["rows"]}
    assert document["smoke"] is True
    assert rows["plain decoding"]["value"] > 0
    assert rows["pass of 4 rows, static"]["value"] > 0
    judged = [row for name, row in rows.items() if name.startswith("verify ")]
    assert len(judged) == 3
    assert all("same verdict" in row["note"] for row in judged)
    assert "needs a CUDA device" in rows["streamed from RAM"]["note"]
    assert len(found.stdout.splitlines()) == len(document["rows"])
