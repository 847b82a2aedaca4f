"""Requests and answers around the routes: compressed bodies, HEAD, ids, the log, clients that leave."""

import gzip
import json
import logging
import re
import socket
import time
import zlib
from collections.abc import Callable
from contextlib import closing, suppress
from typing import Any

import anthropic
import httpx
import pytest

from app.server.app import create_app
from app.server.errors import MAX_BODY
from app.server.listen import MAX_HEAD
from tests.app.asynchronous import asynchronous
from tests.app.server.fake_assistant import BUG, FOREVER, FakeAssistant, open_fake
from tests.app.server.serving import HTTP, JSON_HEADERS, Running, serving

HI = [{"role": "user", "content": "hi"}]
BODIES: dict[str, dict[str, Any]] = {
    "chat/completions": {"messages": HI},
    "completions": {"prompt": "hi"},
    "responses": {"input": "hi"},
    "messages": {"messages": HI, "max_tokens": 5},
}
ANTHROPICS = {"anthropic-version": "2023-06-01"}


def raw_deflate(body: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-15)
    return packer.compress(body) + packer.flush()


def send(running: Running, coding: str, content: bytes, route: str = "completions") -> Any:
    headers = {**JSON_HEADERS, "content-encoding": coding}
    return HTTP.post(f"{running.url}/v1/{route}", content=content, headers=headers)


class TestCompressedBodies:
    """Programs compress what is long; what a server cannot read it must name."""

    @pytest.mark.parametrize("route", BODIES)
    @pytest.mark.parametrize(
        ("coding", "pack"),
        [
            ("gzip", gzip.compress),
            ("X-GZIP", gzip.compress),
            ("deflate", zlib.compress),
            ("deflate", raw_deflate),
            ("identity", bytes),
        ],
    )
    def test_are_read(
        self, running: Running, route: str, coding: str, pack: Callable[[bytes], bytes]
    ) -> None:
        body = json.dumps({"model": "pocket", **BODIES[route]}).encode()
        response = send(running, coding, pack(body), route)
        assert response.status_code == 200, response.text
        assert "hi" in response.text

    @pytest.mark.parametrize("coding", ["zstd", "br", "gzip, gzip", "nonsense"])
    def test_unknown_ones_are_named(self, running: Running, coding: str) -> None:
        response = send(running, coding, b"(\xb5/\xfd\x04")
        assert response.status_code == 415
        assert response.headers["accept-encoding"] == "gzip, deflate"
        assert f"compressed as {coding!r}; send it as gzip" in response.json()["error"]["message"]

    @pytest.mark.parametrize("coding", ["gzip", "deflate"])
    @pytest.mark.parametrize("content", [b"{}", b"", gzip.compress(b"{}", mtime=0)[:-4], gzip.compress(b"{}", mtime=0) + b"x"])  # fmt: skip
    def test_broken_ones_are_refused(self, running: Running, coding: str, content: bytes) -> None:
        response = send(running, coding, content)
        assert response.status_code == 400
        assert f"not compressed as {coding}" in response.json()["error"]["message"]

    @pytest.mark.parametrize("size", [MAX_BODY + 1, 40 * MAX_BODY])
    @pytest.mark.parametrize(("coding", "form"), [("gzip", 31), ("deflate", 15), ("deflate", -15)])
    def test_law_none_unpacks_to_more_than_the_limit(
        self, running: Running, size: int, coding: str, form: int
    ) -> None:
        packer = zlib.compressobj(wbits=form)
        bomb = b"".join(packer.compress(bytes(2**20)) for _ in range(size // 2**20 + 1))
        response = send(running, coding, bomb + packer.flush())
        assert response.status_code == 413
        assert "8 MiB" in response.json()["error"]["message"]


@pytest.mark.parametrize("path", ["/health", "/models", "/models/pocket", "/metrics"])
def test_whatever_can_be_read_answers_head(url: str, path: str) -> None:
    for address in (f"{url}{path}", f"{url}/v1{path}"):
        whole, head = HTTP.get(address), HTTP.head(address)
        assert (head.status_code, head.content) == (200, b"")
        assert head.headers["content-length"] == str(len(whole.content))
    assert HTTP.head(f"{url}/v1/chat/completions").status_code == 405


WRONG: list[tuple[str, str, dict[str, Any], int]] = [
    ("GET", "/v1/nothing", {}, 404),
    ("POST", "/v1", {}, 404),
    ("POST", "/v1/chat//completions", {}, 404),
    ("PROPFIND", "/v1/models", {}, 405),
    ("GET", "/messages", {}, 405),
    ("OPTIONS", "/v1/messages", {}, 405),
    ("DELETE", "/backups/x", {}, 405),
    ("GET", "/v1/models/nobody", {}, 404),
    ("POST", "/v1/messages", {"content": b"{"}, 400),
    ("POST", "/v1/messages/count_tokens", {"content": b"{}", "headers": JSON_HEADERS}, 400),
    ("POST", "/v1/responses", {"content": b"a=b", "headers": {"content-type": "text/plain"}}, 400),
    ("POST", "/v1/messages", {"files": {"a": b"b"}}, 400),
    ("POST", "/v1/messages", {"json": {"model": "x", **BODIES["messages"]}}, 404),
    ("POST", "/v1/chat/completions", {"content": b"\xff", "headers": {"content-encoding": "br"}}, 415),
    ("POST", "/v1/messages", {"content": bytes(MAX_BODY + 1)}, 413),
    ("GET", "/v1/models", {"headers": {"host": "evil.com"}}, 400),
    ("POST", "/v1/messages", {"headers": {"origin": "http://evil.com"}}, 403),
    ("POST", "/v1/messages", {"json": {"model": "pocket", "max_tokens": 5, "messages": [{"role": "user", "content": BUG}]}}, 500),
]  # fmt: skip
KINDS = {403: "permission_error", 404: "not_found_error", 413: "request_too_large", 500: "api_error"}  # fmt: skip


@pytest.mark.parametrize(("method", "path", "sent", "status"), WRONG)
@pytest.mark.parametrize("theirs", [{}, ANTHROPICS])
def test_every_failure_has_the_shape_that_its_client_reads(
    running: Running, method: str, path: str, sent: dict[str, Any], status: int, theirs: Any
) -> None:
    given = {**sent, "headers": {**sent.get("headers", {}), **theirs}}
    response = HTTP.request(method, f"{running.url}{path}", **given)
    body = response.json()
    assert response.status_code == status, body
    assert body["type"] == "error"
    assert {"message", "type", "param", "code"} == set(body["error"])
    if theirs or "/messages" in path:
        assert body["request_id"] == response.headers["request-id"]
        assert body["error"]["type"] == KINDS.get(status, "invalid_request_error")
    else:
        assert body["error"]["type"] in ("invalid_request_error", "server_error")


def talk(running: Running, *parts: bytes) -> bytes:
    """Everything that comes back until the server closes."""
    with socket.create_connection(("127.0.0.1", running.port), timeout=5) as connection:
        for part in parts:
            connection.sendall(part)
        found = b""
        with suppress(ConnectionResetError):  # it has not read all that was sent
            while more := connection.recv(65536):
                found += more
    return found


@pytest.mark.parametrize("sent", [b"hello\r\n\r\n", b"GET / HTTP/1.1\r\nX: " + b"a" * 2 * MAX_HEAD, b"\x16\x03\x01\x02\r\n\r\n"])  # fmt: skip
def test_what_is_no_request_is_refused_in_the_same_shape(running: Running, sent: bytes) -> None:
    head, _, body = talk(running, sent).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 Bad Request")
    assert "no HTTP/1.1" in json.loads(body)["error"]["message"]


def test_anthropics_client_lists_models_and_reads_failures(running: Running) -> None:
    client = anthropic.Anthropic(base_url=running.url, api_key="none", max_retries=0)
    with closing(client):
        page = client.models.list(limit=5)
        [model] = [*page]
        assert (model.id, model.display_name, model.type) == ("pocket", "pocket", "model")
        assert abs(model.created_at.timestamp() - time.time()) < 3600
        assert (page.first_id, page.last_id, page.has_more) == ("pocket", "pocket", False)
        assert [*client.models.list(after_id="pocket")] == []
        assert client.models.retrieve("pocket") == model
        with pytest.raises(anthropic.NotFoundError) as caught:
            client.models.retrieve("claude")
    assert caught.value.type == "not_found_error"
    assert caught.value.request_id


class TestIds:
    """Who reports a failure names its request, and the log has the rest."""

    @pytest.mark.parametrize("path", ["/health", "/v1/nothing", "/v1/models", "/nothing"])
    def test_every_answer_has_its_own(self, running: Running, path: str) -> None:
        found = [HTTP.get(f"{running.url}{path}").headers for _ in range(2)]
        assert all(re.fullmatch("req_[0-9a-f]{32}", one["x-request-id"]) for one in found)
        assert found[0]["x-request-id"] == found[0]["request-id"] != found[1]["request-id"]

    @pytest.mark.parametrize(
        ("given", "kept"),
        [("trace-7:a.b_c", True), ("a" * 129, False), ("a b", False), ("", False), ("é", False)],
    )
    def test_one_that_the_client_sends_is_kept(
        self, running: Running, given: str, kept: bool
    ) -> None:
        headers = {"x-request-id": given.encode()}
        found = HTTP.get(f"{running.url}/health", headers=headers).headers["x-request-id"]
        assert (found == given) is kept

    @pytest.mark.parametrize("stream", [False, True])
    def test_an_unexpected_failure_is_logged_with_it(
        self, running: Running, caplog: pytest.LogCaptureFixture, stream: bool
    ) -> None:
        body = {"model": "pocket", "stream": stream, "messages": [{"role": "user", "content": BUG}]}
        response = HTTP.post(f"{running.url}/v1/chat/completions", json=body)
        number = response.headers["x-request-id"]
        assert f"details of {number}" in response.text
        [record] = [one for one in caplog.records if number in one.getMessage()]
        assert record.exc_info


@asynchronous
async def test_access_is_logged_and_shown_on_demand(caplog: pytest.LogCaptureFixture) -> None:
    lines: list[str] = []
    caplog.set_level(logging.INFO, "app.server")
    transport = httpx.ASGITransport(create_app(FakeAssistant(), shown=lines.append))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        await client.head("/v1/models?key=secret")
        await client.post("/v1/chat/completions", json={"model": "pocket", **BODIES["messages"]})
        await client.get("/v1/a%20b%0Ac", headers={"x-request-id": "mine"})
    logged = [one.getMessage() for one in caplog.records if one.name == "app.server.exchange"]
    wanted = ["HEAD /v1/models 200", "POST /v1/chat/completions 200", "GET /v1/a%20b%0Ac 404"]
    for line, shown, words in zip(logged, lines, wanted, strict=True):
        assert re.fullmatch(rf"127\.0\.0\.1 {words} \d+\.\d{{3}}s \S+", line)
        assert shown.endswith(f" {line}\n")
    assert logged[-1].endswith(" mine")


def asked(route: str, **fields: Any) -> bytes:
    body = {"model": "pocket", "messages": [{"role": "user", "content": FOREVER}], **fields}
    content = json.dumps(body).encode()
    head = f"POST /v1/{route} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content


NEXT = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"


@pytest.mark.parametrize("leave", ["shutdown", "close"])
@pytest.mark.parametrize("ending", [b"", b"\r\n", NEXT, NEXT[:20]])
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("route", ["chat/completions", "messages"])
def test_a_client_that_leaves_frees_its_slot(
    running: Running, leave: str, ending: bytes, stream: bool, route: str
) -> None:
    """Who had sent more than its request was never seen to leave."""
    running.assistant.pause = 0.02
    request = asked(route, stream=stream, max_tokens=10**6)
    with socket.create_connection(("127.0.0.1", running.port), timeout=5) as connection:
        connection.sendall(request)
        while not running.assistant.running:
            time.sleep(0.01)
        connection.sendall(ending)
        running.assistant.pause = 5.0  # nothing is written that could fail
        if leave == "shutdown":
            connection.shutdown(socket.SHUT_WR)
            assert running.assistant.ended.wait(2)
    assert running.assistant.ended.wait(2)


def test_a_client_that_neither_reads_nor_sends_frees_its_slot(running: Running) -> None:
    """The answer waited for a full buffer to drain."""
    running.assistant.pause = 0.0
    with socket.create_connection(("127.0.0.1", running.port), timeout=5) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.sendall(asked("chat/completions", stream=True))
        steps = -1
        while steps != running.assistant.steps or not steps:
            steps = running.assistant.steps
            time.sleep(0.3)
        connection.shutdown(socket.SHUT_WR)
        assert running.assistant.ended.wait(2)


def test_idle_connections_stay_open_longer_than_clients_keep_them(running: Running) -> None:
    assert running.server.config.timeout_keep_alive >= 75
    with httpx.Client(base_url=running.url) as client:
        ports = {client.get("/health").extensions["network_stream"].get_extra_info("client_addr") for _ in range(3)}  # fmt: skip
    assert len(ports) == 1


def test_a_stop_does_not_wait_for_the_servers_next_look(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.server.listen.TICK_SECONDS", 600.0)
    with serving(open_fake) as running:
        assert HTTP.get(f"{running.url}/health").status_code == 200


def test_the_description_has_every_route_and_its_failures(running: Running) -> None:
    found = HTTP.get(f"{running.url}/v1/openapi.json").json()
    assert {path.strip("/") for path in found["paths"]} == {
        *BODIES, "responses/{name}", "messages/count_tokens", "models", "models/{name}", "health", "metrics",
    }  # fmt: skip
    for operations in found["paths"].values():
        for operation in operations.values():
            assert {"200", "4XX", "5XX"} == set(operation["responses"])
    assert HTTP.get(f"{running.url}/openapi.json").json()["paths"] == found["paths"]
