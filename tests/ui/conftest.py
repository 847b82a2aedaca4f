"""One running Slipstream for every test that only talks to it."""

from collections.abc import Iterator

import pytest

from tests.ui.application import Application, application
from tests.ui.lived_in import furnish


@pytest.fixture(scope="session")
def app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Application]:
    with application(tmp_path_factory.mktemp("home")) as running:
        yield running


@pytest.fixture(scope="session")
def lived_in(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Application]:
    """One more, in a home with a past."""
    home = tmp_path_factory.mktemp("home")
    furnish(home)
    with application(home) as running:
        yield running
