"""Copies of the history over HTTP: exactly those that were made, by name."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from app.history.store import History
from app.server.app import create_app
from app.server.backups import ROUTE
from tests.app.server.fake_assistant import FakeAssistant


@pytest.fixture
def history(tmp_path: Path) -> Iterator[History]:
    opened = History.open(tmp_path / "history.db")
    yield opened
    opened.close()


@pytest.fixture
def client(history: History) -> TestClient:
    return TestClient(create_app(FakeAssistant(history)), base_url="http://127.0.0.1")


def test_a_copy_comes_byte_by_byte_as_a_file_to_keep(history: History, client: TestClient) -> None:
    history.create_conversation("Boats")
    made = history.upkeep.back_up()
    answer = client.get(f"{ROUTE}/{made.path.name}")
    assert answer.status_code == 200
    assert answer.content == made.path.read_bytes()
    assert made.path.name in answer.headers["content-disposition"]
    assert answer.headers["content-disposition"].startswith("attachment")


@pytest.mark.parametrize(
    "name", ["history.db", "..%2Fhistory.db", "%2e%2e/history.db", "history-nothing.db", "x%00"]
)
def test_nothing_else_can_be_read(history: History, client: TestClient, name: str) -> None:
    history.upkeep.back_up()
    answer = client.get(f"{ROUTE}/{name}")
    assert answer.status_code == 404
    assert b"SQLite format" not in answer.content


def test_another_site_reads_no_copy(history: History, client: TestClient) -> None:
    made = history.upkeep.back_up()
    path = f"{ROUTE}/{made.path.name}"
    assert client.get(path, headers={"host": "evil.com"}).status_code >= 400
    answer = client.get(path, headers={"origin": "http://evil.com"})
    assert "access-control-allow-origin" not in answer.headers  # a browser then gives it nothing
