"""A running Slipstream for every test that only talks to it, a browser for each file, a page for each test."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page

from tests.ui.application import Application, application
from tests.ui.browser import chromium, visiting
from tests.ui.lived_in import furnish
from ui.gradio_import import without_stubs

with without_stubs():  # or it parses its own sources first, which takes two seconds
    import gradio  # noqa: F401


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


@pytest.fixture(scope="module")
def browser(browser_path: str) -> Iterator[Browser]:
    with chromium(browser_path) as opened:
        yield opened


@pytest.fixture
def page(app: Application, browser: Browser) -> Iterator[Page]:
    with visiting(browser, app) as opened:
        yield opened
