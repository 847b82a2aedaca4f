"""A history of its own for every test, and replies to fill it with."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from app.history.file import HistoryFile
from app.history.store import History


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return tmp_path / "history.db"


@pytest.fixture
def file(database: Path) -> Iterator[HistoryFile]:
    """The file of ``history``, for a look at its rows."""
    opened = HistoryFile.open(database)
    yield opened
    opened.close()


@pytest.fixture
def history(file: HistoryFile) -> History:
    return History(file)
