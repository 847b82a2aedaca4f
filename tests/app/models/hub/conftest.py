"""The stand-in hub of the downloads, with one small model."""

from collections.abc import Iterator

import pytest

from app.models.hub.client import Hub
from tests.app.models.downloads.hub import Repo, StandInHub, model_files


@pytest.fixture
def stand_in() -> Iterator[StandInHub]:
    with StandInHub({"org/tiny": Repo(model_files(1, 100_000))}).running() as hub:
        yield hub


@pytest.fixture
def hub(stand_in: StandInHub) -> Iterator[Hub]:
    made = Hub(stand_in.url)
    yield made
    made.close()
