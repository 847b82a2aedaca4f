"""A stand-in hub with one small model, and a client of it."""

from collections.abc import Iterator

import httpx
import pytest

from app.models.hub.client import Hub
from tests.app.models.downloads.hub import Repo, StandInHub, model_files

pytest.register_assert_rewrite("tests.app.models.downloads.queueing")


@pytest.fixture
def stand_in() -> Iterator[StandInHub]:
    with StandInHub({"org/tiny": Repo(model_files(1, 2 << 20))}).running() as hub:
        yield hub


@pytest.fixture
def hub(stand_in: StandInHub) -> Iterator[Hub]:
    made = Hub(stand_in.url, timeout=httpx.Timeout(2.0))
    yield made
    made.close()
