"""Python programs in processes of their own."""

import os
import subprocess
import sys
from pathlib import Path

from tests.bundled import ROOT


def run_python(
    program: str, *arguments: str, cwd: Path = ROOT, **variables: str | None
) -> subprocess.CompletedProcess[str]:
    """The program until it ends by itself; environment variables that are None are not set."""
    changed = os.environ | {"PYTHONPATH": str(ROOT)} | variables
    return subprocess.run(
        [sys.executable, "-c", program, *arguments],
        cwd=cwd,
        env={name: value for name, value in changed.items() if value is not None},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
