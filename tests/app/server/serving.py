"""The real endpoint in a thread of its own, and requests to it as programs send them."""

import asyncio
import json
import shutil
import socket
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from app.chat.assistant import Assistant
from app.keys.opening import Tls
from app.server.app import create_app
from app.server.door import Access
from app.server.listen import Server
from app.settings import Settings
from app.text.template import TRUSTED

NUMBER = {"type": "integer", "minimum": 0, "maximum": 99}
TWO_NUMBERS = {"type": "object", "properties": {"a": NUMBER, "b": NUMBER}, "required": ["a", "b"]}
ADD = {"name": "add", "description": "Adds two numbers.", "parameters": TWO_NUMBERS}
ADD_TOOL = {"type": "function", "function": ADD}
SUM = "What is 17 + 25?"
STORY = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": SUM},
    {"role": "assistant", "content": "42"},
    {"role": "user", "content": "And 3 more?"},
]
JSON_HEADERS = {"content-type": "application/json"}
# One for all: a client takes longer to make than an answer. No connection outlives its request.
HTTP = httpx.Client(timeout=60, limits=httpx.Limits(max_keepalive_connections=0))


@dataclass(frozen=True)
class Running:
    """A server that answers, and its assistant."""

    port: int
    assistant: Any
    server: Server
    host: str = "127.0.0.1"
    scheme: str = "http"

    @property
    def url(self) -> str:
        return f"{self.scheme}://{self.host}:{self.port}"


@contextmanager
def serving(
    opened: Callable[[], Awaitable[Any]],
    host: str = "127.0.0.1",
    access: Access | None = None,
    tls: Tls | None = None,
) -> Iterator[Running]:
    """The endpoint of the assistant that ``opened`` gives in the server's thread."""
    listener, ready = socket.create_server((host, 0)), threading.Event()
    started: list[Running] = []

    async def run() -> None:
        assistant = await opened()
        server = Server(create_app(assistant, host, access=access), ready.set, tls)
        scheme = "https" if tls else "http"
        started.append(Running(listener.getsockname()[1], assistant, server, host, scheme))
        await server.serve([listener])
        await assistant.close()

    thread = threading.Thread(target=lambda: asyncio.run(run()))
    thread.start()
    assert ready.wait(60)
    try:
        yield started[0]
    finally:
        started[0].server.stop()
        thread.join(20)
    assert not thread.is_alive()


@contextmanager
def served(home: Path, model: str = "pocket") -> Iterator[str]:
    """The address of the endpoint of a real model."""
    with serving(lambda: Assistant.open(Settings(home=home), model)) as running:
        yield running.url


@contextmanager
def served_changed(folder: Path, change: Callable[[Path], None]) -> Iterator[str]:
    """The same of the bundled model after ``change`` has changed a copy of its files."""
    model = folder / "models" / "pocket"
    shutil.copytree(TRUSTED / "pocket", model)
    change(model)
    with served(folder / "home", str(model)) as url:
        yield url


def story_of_a_call(name: str, arguments: str) -> list[dict[str, Any]]:
    """A question, a call of ``add`` and its result, as a chat has them."""
    call = {"id": name, "type": "function", "function": {"name": "add", "arguments": arguments}}
    return [
        STORY[1],
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": name, "content": "42"},
    ]


def post(url: str, route: str, **fields: Any) -> httpx.Response:
    """Half characters and numbers that are none are sent, too."""
    body = json.dumps({"model": "pocket", **fields})
    return HTTP.post(f"{url}/v1/{route}", content=body, headers=JSON_HEADERS)


def answer(url: str, route: str = "chat/completions", **fields: Any) -> dict[str, Any]:
    """The body of an answer that succeeds."""
    response = post(url, route, **fields)
    assert response.status_code == 200, response.text
    return dict(response.json())


def choice(url: str, **fields: Any) -> dict[str, Any]:
    """The first choice of a chat completion."""
    return dict(answer(url, **fields)["choices"][0])


def chat(url: str, messages: list[dict[str, Any]], **fields: Any) -> str:
    """The text of a chat completion."""
    return str(choice(url, messages=messages, **fields)["message"]["content"])


def events(url: str, route: str = "chat/completions", **fields: Any) -> list[dict[str, Any]]:
    """The bodies of a stream. In a chat the last line says ``[DONE]``; else events have names."""
    response = post(url, route, stream=True, **fields)
    assert response.headers["content-type"].startswith("text/event-stream"), response.text
    blocks = [block for block in response.text.strip().split("\n\n") if block[0] != ":"]
    if not route.endswith("completions"):
        names = [block.partition("\n")[0].removeprefix("event: ") for block in blocks]
        bodies = [json.loads(block.partition("\ndata: ")[2]) for block in blocks]
        assert [body["type"] for body in bodies] == names
        return bodies
    data = [block.removeprefix("data: ") for block in blocks]
    if data[-1] != "[DONE]":
        assert "error" in data[-1]
        data.append("")
    return [json.loads(each) for each in data[:-1]]


def deltas(url: str, **fields: Any) -> list[dict[str, Any]]:
    """Those of a streamed chat completion."""
    return [event["choices"][0]["delta"] for event in events(url, **fields)]


def joined(parts: list[dict[str, Any]], name: str = "content") -> str:
    """All that the deltas say under this name."""
    return "".join(delta.get(name) or "" for delta in parts)
