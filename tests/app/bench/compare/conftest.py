"""The real pocket model, loaded once for everything that is measured here."""

import asyncio
from collections.abc import Iterator

import pytest

from app.chat.assistant import Assistant
from app.settings import Settings


@pytest.fixture(scope="package")
def assistant(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Assistant]:
    home = tmp_path_factory.mktemp("compare")
    opened = asyncio.run(Assistant.open(Settings(home=home), "pocket"))
    yield opened
    asyncio.run(opened.close())
