"""Who may send requests: names, origins, sizes, and requests that never end."""

import asyncio
import socket
import time
from collections.abc import Iterator

import httpx
import pytest

from app.server.app import create_app
from app.server.door import Access
from app.server.listen import PunctualH11
from tests.app.server.fake_assistant import FakeAssistant
from tests.app.server.serving import HTTP, Running

PATHS = ("/health", "/v1/models", "/v1/nothing", "/models", "/")
BODY = {"model": "pocket", "messages": [{"role": "user", "content": "hi"}]}


FOREIGN_HOSTS = [
    "evil.com",
    "evil.com:{port}",
    "127.0.0.1.evil.com",
    "127.0.0.1:{port}.evil.com",
    "localhost.",
    "localhost.evil.com",
    "user@127.0.0.1",
    "127.0.0.1:port",
    "127.0.0.1/x",
    "127.0.0.1?x",
    "127.1",
    "0.0.0.0",
    "192.168.0.5",
    "::1",
    "[::ffff:127.0.0.1]",
    "[::1",
    ":{port}",
]


@pytest.mark.parametrize("host", [*FOREIGN_HOSTS, ""])
def test_law_only_local_names_are_answered(running: Running, host: str) -> None:
    headers = {"Host": host.format(port=running.port)}
    for path in PATHS:
        response = HTTP.get(f"{running.url}{path}", headers=headers)
        assert response.status_code == 400, path
        assert response.json()["error"]["code"] == "invalid_host", path


@pytest.mark.parametrize("name", ["127.0.0.1", "localhost", "LOCALHOST", "[::1]"])
def test_local_names_pass_with_any_port(running: Running, name: str) -> None:
    for port in ("", f":{running.port}", ":1"):
        headers = {"Host": name + port}
        assert HTTP.get(f"{running.url}/health", headers=headers).status_code == 200


async def _ask(bound: str, host: str, access: Access | None = None) -> int:
    transport = httpx.ASGITransport(create_app(FakeAssistant(), bound, access=access))
    async with httpx.AsyncClient(transport=transport, base_url=f"http://{host}") as client:
        return (await client.get("/health")).status_code


@pytest.mark.parametrize(
    ("bound", "host", "status"),
    [
        ("192.168.0.5", "192.168.0.5:7860", 200),
        ("192.168.0.5", "192.168.0.6:7860", 400),
        ("192.168.0.5", "evil.com", 400),
        ("fd00::1", "[fd00::1]:7860", 200),
        ("0.0.0.0", "evil.com", 400),
    ],
)
def test_only_the_bound_address_is_added(bound: str, host: str, status: int) -> None:
    assert asyncio.run(_ask(bound, host)) == status


@pytest.mark.parametrize(
    ("bound", "host", "status"),
    [
        ("0.0.0.0", "192.168.0.5:7860", 200),  # the address that was connected to
        ("::", "[fd00::1]:7860", 200),
        ("0.0.0.0", "server.lan:7860", 200),  # which a person has listed
        ("192.168.0.5", "server.lan", 200),
        ("0.0.0.0", "evil.com", 400),
        ("", "evil.lan", 400),
    ],
)
def test_a_server_for_other_machines_has_its_addresses_and_listed_names(
    bound: str, host: str, status: int
) -> None:
    assert asyncio.run(_ask(bound, host, Access(names=("server.lan",)))) == status


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS"])
@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.com"},
        {"Origin": "http://evil.com:{port}"},
        {"Origin": "http://127.0.0.1:1"},
        {"Origin": "http://localhost:{port}"},
        {"Origin": "https://127.0.0.1:{port}"},
        {"Origin": "null"},
        {"Origin": ""},
        {"Sec-Fetch-Site": "cross-site"},
    ],
)
def test_law_other_sites_change_nothing(
    running: Running, method: str, headers: dict[str, str]
) -> None:
    sent = {name: value.format(port=running.port) for name, value in headers.items()}
    for path in ("/v1/chat/completions", "/"):
        response = HTTP.request(method, f"{running.url}{path}", json=BODY, headers=sent)
        assert response.status_code == 403
        assert response.json()["error"]["code"] == "foreign_origin"
    assert not running.assistant.requests


def test_own_page_and_programs_pass(running: Running) -> None:
    url = f"{running.url}/v1/chat/completions"
    own = {"Origin": running.url, "Sec-Fetch-Site": "same-origin"}
    assert HTTP.post(url, json=BODY, headers=own).status_code == 200
    assert HTTP.post(url, json=BODY).status_code == 200


@pytest.mark.parametrize("path", PATHS)
def test_every_answer_keeps_the_browser_on_this_server(running: Running, path: str) -> None:
    for host in ("127.0.0.1", "[::1]"):
        other = {"Origin": "https://evil.com", "Host": f"{host}:{running.port}"}
        response = HTTP.get(f"{running.url}{path}", headers=other)
        assert "access-control-allow-origin" not in response.headers
    headers = HTTP.get(f"{running.url}{path}").headers
    assert "default-src 'self'" in headers["content-security-policy"]
    assert "http" not in headers["content-security-policy"]
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["x-frame-options"] == "DENY"


def _parts() -> Iterator[bytes]:
    for _ in range(9):
        yield b"a" * 2**20


@pytest.mark.parametrize("chunked", [True, False])
def test_body_that_is_too_large_is_refused(running: Running, chunked: bool) -> None:
    content = _parts() if chunked else b"".join(_parts())
    headers = {"content-type": "application/json"}
    response = HTTP.post(f"{running.url}/v1/chat/completions", content=content, headers=headers)
    assert response.status_code == 413
    assert "8 MiB" in response.json()["error"]["message"]


def test_head_that_is_too_large_is_refused(running: Running) -> None:
    with socket.create_connection(("127.0.0.1", running.port), timeout=5) as connection:
        connection.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 100_000)
        assert connection.recv(12) == b"HTTP/1.1 400"


@pytest.fixture
def half_requests(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> Iterator[list[socket.socket]]:
    """Connections that owe a head, a body, or the head of a second request."""
    monkeypatch.setattr(PunctualH11, "head_seconds", 0.2)
    monkeypatch.setattr(PunctualH11, "body_seconds", 0.4)
    head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n"
    body = head + b"Content-Type: application/json\r\nContent-Length: 1000\r\n\r\n{"
    whole = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
    sockets = []
    for start in (b"", head, body, whole):
        sockets.append(socket.create_connection(("127.0.0.1", running.port)))
        sockets[-1].sendall(start)
    assert b"200 OK" in sockets[-1].recv(65536)
    sockets[-1].sendall(head)
    yield sockets
    for each in sockets:
        each.close()


def test_half_requests_are_given_up(running: Running, half_requests: list[socket.socket]) -> None:
    assert HTTP.get(f"{running.url}/health").status_code == 200
    started = time.monotonic()
    for each in half_requests:
        each.settimeout(3)
        while each.recv(65536):  # what is left of an answer, then the end
            pass
    assert time.monotonic() - started < 2


def test_slow_answer_is_not_given_up(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PunctualH11, "head_seconds", 0.1)
    monkeypatch.setattr(PunctualH11, "body_seconds", 0.2)
    running.assistant.pause = 0.3
    assert HTTP.post(f"{running.url}/v1/chat/completions", json=BODY).status_code == 200
