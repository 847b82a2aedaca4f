"""A real server on a free port, in a thread of its own."""

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import openai
import pytest

from app.server.app import create_app
from app.server.listen import Server
from tests.app.server.fake_assistant import FakeAssistant


@dataclass(frozen=True)
class Running:
    """A server that answers, and what is behind it."""

    port: int
    assistant: FakeAssistant
    server: Server

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


@contextmanager
def serving() -> Iterator[Running]:
    assistant, ready = FakeAssistant(), threading.Event()
    server = Server(create_app(assistant), ready.set)
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    thread = threading.Thread(target=lambda: asyncio.run(server.serve([listener])))
    thread.start()
    assert ready.wait(20)
    try:
        yield Running(port, assistant, server)
    finally:
        server.should_exit = True
        thread.join(10)
    assert not thread.is_alive()


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    with serving() as running:
        yield running


@pytest.fixture
def running(server: Running) -> Running:
    """The server of the module, with an assistant that remembers nothing."""
    server.assistant.forget()
    return server


@pytest.fixture
def client(running: Running) -> Iterator[openai.OpenAI]:
    url = f"{running.url}/v1"
    with openai.OpenAI(base_url=url, api_key="none", max_retries=0, timeout=20) as client:
        yield client
