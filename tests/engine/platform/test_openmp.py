"""Threads that wait at a barrier soon give their cores away, unless a person set it otherwise."""

import os
import subprocess
import sys

import pytest

from engine.platform.openmp import SPINS, sleep_soon


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
