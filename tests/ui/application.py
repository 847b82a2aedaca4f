"""The real command in a process of its own."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

ROOT = Path(__file__).parents[2]
COMMAND = [sys.executable, "-c", "import sys; from ui.launch import main; sys.exit(main())"]
QUICK = "from app.worker import child; child.AHEAD += ('tests.quick_engines',)"  # as in conftest.py
SERVER = [sys.executable, "-c", f"{QUICK}; {COMMAND[-1]}"]


@dataclass(frozen=True)
class Application:
    """A running Slipstream and where it answers."""

    process: subprocess.Popen[str]
    address: str

    @property
    def family(self) -> list[psutil.Process]:
        """Its process and every child of it."""
        parent = psutil.Process(self.process.pid)
        return [parent, *parent.children(recursive=True)]

    @property
    def engine(self) -> psutil.Process:
        """The child with the model: by far the largest."""
        return max(self.family[1:], key=lambda process: process.memory_info().rss)


def environment(home: Path) -> dict[str, str]:
    return os.environ | {"SLIPSTREAM_HOME": str(home), "PYTHONPATH": str(ROOT)}


@contextmanager
def application(home: Path, *arguments: str) -> Iterator[Application]:
    """Slipstream on a free port with its state in ``home``."""
    command = [*SERVER, "--port", "0", "--no-browser", *arguments]
    with subprocess.Popen(
        command, cwd=home, env=environment(home), stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            said = next((line for line in process.stdout if "http" in line), "")
            address = re.search(r"http://[^ ]+", said)
            assert address, f"the command ended with {process.wait(5)}"
            yield Application(process, address[0])
        finally:
            process.terminate()
            process.wait(60)  # a busy machine ends slowly


def run(home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The command until it ends by itself."""
    return subprocess.run(
        [*COMMAND, *arguments],
        cwd=home,
        env=environment(home),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
