"""A history of its own for every test, and replies to fill it with."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from app.history.store import History


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return tmp_path / "history.db"


@pytest.fixture
def history(database: Path) -> Iterator[History]:
    opened = History.open(database)
    yield opened
    opened.close()
