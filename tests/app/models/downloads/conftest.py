"""A stand-in hub with one small model, and a queue that downloads from it."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from app.models.downloads.job import JobContext
from app.models.downloads.queue import Downloads
from app.models.downloads.staging import Space
from app.models.hub.client import Hub
from tests.app.models.downloads.hub import Repo, StandInHub, model_files

MIB = 1 << 20

pytest.register_assert_rewrite("tests.app.models.downloads.queueing")


@pytest.fixture
def stand_in() -> Iterator[StandInHub]:
    with StandInHub({"org/tiny": Repo(model_files(1, 2 * MIB))}).running() as hub:
        yield hub


@pytest.fixture
def models(tmp_path: Path) -> Path:
    folder = tmp_path / "models"
    folder.mkdir()
    return folder


@pytest.fixture
def hub(stand_in: StandInHub) -> Iterator[Hub]:
    made = Hub(stand_in.url, timeout=httpx.Timeout(2.0))
    yield made
    made.close()


@pytest.fixture
def downloads(hub: Hub, models: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Downloads]:
    monkeypatch.setattr("app.models.downloads.fetch.SHORTEST_WAIT", 0.01)
    queue = Downloads(JobContext(hub, models, Space(models, reserve=0)))
    yield queue
    queue.close()
