"""What runs in processes of its own ends with the process that asked for it."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

SCRIPT = """
import sys
from pathlib import Path
from tests.app.bench.papers.test_workers import asked
if __name__ == "__main__":
    asked(Path(sys.argv[1]))
"""
BEGUN, GONE = 60.0, 20.0  # seconds


def wait(instrument, folder):
    """A part that takes far longer than the test."""
    (folder / str(os.getpid())).touch()
    time.sleep(300)


def asked(folder):
    import torch

    from app.bench.papers.harness import Harness
    from app.bench.prompt_files import load_prompts
    from app.settings import load_settings

    torch.set_num_threads(2)
    instrument = Harness(load_settings(), "pocket", load_prompts(None, 1), lambda said: None)
    instrument.spread_out(wait, [folder, folder])


def until(true, seconds):
    end = time.monotonic() + seconds
    while not true() and time.monotonic() < end:
        time.sleep(0.05)
    return true()


def alive(process):
    try:
        state = Path(f"/proc/{process}/status").read_text()
    except OSError:  # it is no more
        return False
    return "State:\tZ" not in state


@pytest.mark.skipif(
    not Path("/proc/self/status").exists(), reason="reads Linux's list of processes"
)
def test_workers_end_when_a_bench_is_ended(tmp_path):
    script, folder = tmp_path / "asks.py", tmp_path / "workers"
    script.write_text(SCRIPT, encoding="utf-8")
    folder.mkdir()
    root = str(Path(__file__).resolve().parents[4])
    bench = subprocess.Popen(
        [sys.executable, str(script), str(folder)], env={**os.environ, "PYTHONPATH": root}
    )
    try:
        assert until(lambda: len(list(folder.iterdir())) == 2, BEGUN)
        workers = [int(file.name) for file in folder.iterdir()]
        bench.send_signal(signal.SIGTERM)
        assert bench.wait(GONE) == -signal.SIGTERM
        assert until(lambda: not any(map(alive, workers)), GONE)
    finally:
        bench.kill()
        bench.wait()
