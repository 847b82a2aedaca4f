"""Threads that wait at a barrier soon give their cores away, unless a person set it otherwise."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from engine.platform.threads import SPINS, one_openblas_thread, sleep_soon


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({}, {"GOMP_SPINCOUNT": SPINS}),
        ({"GOMP_SPINCOUNT": "7"}, {"GOMP_SPINCOUNT": "7"}),
        ({"OMP_WAIT_POLICY": "active"}, {"OMP_WAIT_POLICY": "active"}),
    ],
)
def test_what_a_person_set_stays(before, after):
    sleep_soon(before)
    assert before == after


def test_it_is_said_before_torch_is_loaded_and_processes_of_the_app_inherit_it(tmp_path):
    """A command that loads nothing heavy has said it, and torch is not there yet."""
    script = (
        "import os, sys; from app.commands import main as cli; code = cli.main(['models', 'list'], None); "
        "assert 'torch' not in sys.modules; print(code, os.environ['GOMP_SPINCOUNT'])"
    )
    clean = {n: v for n, v in os.environ.items() if n not in {"GOMP_SPINCOUNT", "OMP_WAIT_POLICY"}}
    done = subprocess.run(
        [sys.executable, "-c", script], env=clean | {"SLIPSTREAM_HOME": str(tmp_path)},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.splitlines()[-1] == f"0 {SPINS}"


@pytest.mark.skipif(sys.platform != "linux", reason="wheels for Linux bring GNU's OpenMP")
def test_it_still_applies_torch_brings_the_openmp_that_reads_the_spin_count():
    (library,) = Path(torch.__file__).parent.glob("lib/libgomp*")
    assert b"GOMP_SPINCOUNT" in library.read_bytes()


def test_it_still_applies_numpy_brings_an_openblas_whose_threads_can_be_set():
    folder = Path(np.__file__).parents[1] / "numpy.libs"
    if not list(folder.glob("*openblas*")):
        pytest.skip("this NumPy was built with another library")
    assert one_openblas_thread()
