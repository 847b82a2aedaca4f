"""A queue that downloads from the stand-in hub."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from app.models.downloads.job import JobContext
from app.models.downloads.queue import Downloads
from app.models.downloads.staging import Space
from app.models.hub.client import Hub


@pytest.fixture
def models(tmp_path: Path) -> Path:
    folder = tmp_path / "models"
    folder.mkdir()
    return folder


@pytest.fixture
def downloads(hub: Hub, models: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Downloads]:
    monkeypatch.setattr("app.models.downloads.fetch.SHORTEST_WAIT", 0.01)
    queue = Downloads(JobContext(hub, models, Space(models, reserve=0)))
    yield queue
    queue.close()
