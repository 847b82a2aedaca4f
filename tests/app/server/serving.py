"""The real endpoint over the real model, for tests that talk to it as programs do."""

import asyncio
import socket
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from app.chat.assistant import Assistant
from app.server.app import create_app
from app.server.listen import Server
from app.settings import Settings


@contextmanager
def served(home: Path, model: str = "pocket") -> Iterator[str]:
    """The address of the endpoint, which runs in a thread of its own."""
    with answering(lambda: Assistant.open(Settings(home=home), model)) as url:
        yield url


@contextmanager
def answering(opened: Callable[[], Awaitable[Assistant]]) -> Iterator[str]:
    """The same with the assistant that ``opened`` gives in that thread."""
    listener, ready = socket.create_server(("127.0.0.1", 0)), threading.Event()
    servers: list[Server] = []

    async def run() -> None:
        assistant = await opened()
        servers.append(Server(create_app(assistant), ready.set))
        await servers[0].serve([listener])
        await assistant.close()

    thread = threading.Thread(target=lambda: asyncio.run(run()))
    thread.start()
    assert ready.wait(60)
    yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    servers[0].should_exit = True
    thread.join(20)
