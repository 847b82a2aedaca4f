"""One server with a fake assistant and one with the bundled model, for all tests of this folder."""

from collections.abc import Iterator

import openai
import pytest

from app.keys.key_file import Keys
from tests.app.server.fake_assistant import open_fake
from tests.app.server.serving import Running, served, serving


@pytest.fixture(scope="session")
def server() -> Iterator[Running]:
    with serving(open_fake) as running:
        yield running


@pytest.fixture
def running(server: Running) -> Running:
    """The server with an assistant that remembers nothing."""
    server.assistant.forget()
    return server


@pytest.fixture
def client(running: Running) -> Iterator[openai.OpenAI]:
    url = f"{running.url}/v1"
    with openai.OpenAI(base_url=url, api_key="none", max_retries=0, timeout=20) as client:
        yield client


@pytest.fixture(scope="session")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The endpoint of the bundled model."""
    with served(tmp_path_factory.mktemp("home")) as url:
        yield url


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Keys:
    return Keys(tmp_path_factory.mktemp("home") / "keys.json")


@pytest.fixture(scope="module")
def made(keys: Keys) -> dict[str, str]:
    """Keys by their names; the last one is withdrawn."""
    found = {name: keys.add(name) for name in ("anna", "ben", "gone")}
    keys.remove("gone")
    return found
