"""One running Slipstream for every test that only talks to it."""

from collections.abc import Iterator

import pytest

from tests.ui.application import Application, application


@pytest.fixture(scope="session")
def app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Application]:
    with application(tmp_path_factory.mktemp("home")) as running:
        yield running
