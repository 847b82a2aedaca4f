"""The command line, run in the test's own process."""

import os
from collections.abc import Callable
from pathlib import Path
from unittest.mock import patch

import pytest

from app.commands.main import main
from app.commands.serve import ServeOptions

Run = Callable[..., tuple[int, str, str]]


def no_page(options: ServeOptions) -> int:
    raise AssertionError(f"the page was started: {options}")


@pytest.fixture
def slipstream(home: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs one command; returns the exit code, the output and the errors.

    Each has an environment of its own, as processes have: a command takes variables out of it.
    """

    def run(*arguments: str) -> tuple[int, str, str]:
        capsys.readouterr()
        try:
            with patch.dict(os.environ):
                code = main(arguments, no_page)
        except SystemExit as usage:  # how argparse leaves
            code = usage.code
        return code, *capsys.readouterr()

    return run


@pytest.fixture
def refused(slipstream: Run) -> Callable[..., str]:
    """Runs one command that is refused with code 2 and one line; returns the line."""

    def run(*arguments: str) -> str:
        code, out, err = slipstream(*arguments)
        assert (code, out) == (2, "")
        assert len(err.splitlines()) == 1
        return err

    return run
