"""A stand-in for the hub on real sockets: repositories, redirects to a second host, and faults.

It runs in the test's own process (``StandInHub``); nothing of it is known to the code under test.
"""

import hashlib
import json
import random
import re
import socket
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit

COMMIT = "c" * 40
PIECE = 1 << 16


class Content:
    """Bytes of a file that need no memory: one random block, again and again, each time shifted."""

    def __init__(self, seed: int, size: int) -> None:
        self.size = size
        self._block = random.Random(seed).randbytes((1 << 20) + 7)

    def slice(self, start: int, count: int) -> bytes:
        at = start % len(self._block)
        count = min(count, self.size - start, len(self._block) - at)
        return self._block[at : at + count]

    def pieces(self, start: int = 0) -> Iterator[bytes]:
        while piece := self.slice(start, PIECE):
            yield piece
            start += len(piece)

    def digest(self, running) -> str:
        for piece in self.pieces():
            running.update(piece)
        return running.hexdigest()


class Fixed(Content):
    """Bytes that a test gives."""

    def __init__(self, data: bytes) -> None:
        self.size, self._block = len(data), data or b"\0"


@dataclass
class Repo:
    """One repository; a file is stored as large (sha256) unless its name ends in .json."""

    files: dict[str, Content]
    gated: bool = False
    listing: Callable[[dict], dict] = lambda answer: answer  # what a hostile hub makes of it
    digests: dict[str, tuple[str, str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, content in self.files.items():
            git = content.digest(hashlib.sha1(b"blob %d\0" % content.size))
            self.digests[name] = git, content.digest(hashlib.sha256())

    def large(self, name: str) -> bool:
        return not name.endswith(".json")

    def described(self) -> dict:
        rows = []
        for name, content in self.files.items():
            git, sha256 = self.digests[name]
            row = {"rfilename": name, "size": content.size, "blobId": git}
            if self.large(name):
                row["lfs"] = {"sha256": sha256, "size": content.size, "pointerSize": 134}
            rows.append(row)
        return self.listing(
            {"id": "x", "sha": COMMIT, "siblings": rows, "gated": self.gated and "auto",
             "cardData": {"license": "apache-2.0"}}
        )  # fmt: skip


@dataclass(frozen=True)
class Request:
    """What was asked, and of which of the two hosts."""

    host: str  # "hub" or "cdn"
    path: str
    range: str | None
    authorization: str | None


@dataclass
class StandInHub:
    """Both servers. ``faults`` are taken one by one by requests for a file's bytes."""

    repos: dict[str, Repo]
    token: str = "hf_secret"
    rate: float = 0.0  # bytes per second of one connection; 0 is as fast as it goes
    redirect: str | None = None  # instead of the second host
    direct: bool = False  # no second host at all
    faults: list[str] = field(default_factory=list)
    requests: list[Request] = field(default_factory=list)
    sent: dict[str, int] = field(default_factory=lambda: defaultdict(int))  # bytes, by repo/file
    searched: list[dict] = field(default_factory=list)
    rows: list[dict] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @contextmanager
    def running(self):
        servers = [_Server(("127.0.0.1", 0), _handler(self, host)) for host in ("hub", "cdn")]  # fmt: skip
        self.url, self.cdn = (f"http://127.0.0.1:{server.server_port}" for server in servers)
        threads = [threading.Thread(target=server.serve_forever, args=[0.02]) for server in servers]
        for thread in threads:
            thread.start()
        try:
            yield self
        finally:
            for server, thread in zip(servers, threads, strict=True):
                server.shutdown()
                server.server_close()
                thread.join()

    def fetched(self) -> list[Request]:
        """Requests for the bytes of large files."""
        return [request for request in self.requests if request.host == "cdn"]

    def next_fault(self) -> str:
        with self._lock:
            return self.faults.pop(0) if self.faults else ""

    def count(self, key: str, sent: int) -> None:
        with self._lock:
            self.sent[key] += sent


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def handle_error(self, request, client_address) -> None:
        """A client that was killed is what tests here are about."""


def _handler(hub: StandInHub, host: str) -> type[BaseHTTPRequestHandler]:
    return type("Handler", (_Handler,), {"hub": hub, "host": host})


class _Handler(BaseHTTPRequestHandler):
    hub: StandInHub
    host: str
    protocol_version = "HTTP/1.1"

    def log_message(self, *arguments) -> None:
        pass

    def do_GET(self) -> None:
        seen = self.headers.get
        self.hub.requests.append(
            Request(self.host, self.path, seen("Range"), seen("Authorization"))
        )
        parts = urlsplit(self.path)
        path = unquote(parts.path)
        try:
            if path == "/api/models":
                self.hub.searched.append(parse_qs(parts.query))
                self.answer_json(200, self.hub.rows)
            elif found := re.fullmatch(r"/api/models/(.+?)/revision/(.+)", path):
                self.describe(found[1])
            elif found := re.fullmatch(r"/(.+?)/resolve/([^/]+)/(.+)", path):
                self.resolve(found[1], found[2], found[3])
            else:
                self.answer_json(404, {"error": "no such page"})
        except OSError:  # the client was killed, which is what the test is about
            self.close_connection = True

    def answer_json(self, status: int, content, headers=()) -> None:
        body = json.dumps(content).encode()
        self.send_response(status)
        for name, value in (*headers, ("Content-Length", str(len(body)))):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def describe(self, name: str) -> None:
        repo = self.hub.repos.get(name)
        if repo is None:
            self.answer_json(404, {"error": "x"}, [("X-Error-Code", "RepoNotFound")])
        else:
            self.answer_json(200, repo.described())

    def resolve(self, name: str, commit: str, file: str) -> None:
        repo = self.hub.repos.get(name)
        if repo is None or file not in repo.files or commit != COMMIT:
            return self.answer_json(404, {"error": "x"})
        if self.host == "hub":
            if repo.gated and self.headers.get("Authorization") != f"Bearer {self.hub.token}":
                status = 403 if self.headers.get("Authorization") else 401
                return self.answer_json(status, {}, [("X-Error-Code", "GatedRepo")])
            if repo.large(file) and not self.hub.direct:
                return self.answer_json(302, {}, [("Location", self.hub.redirect or self.hub.cdn + self.path)])  # fmt: skip
        return self.send_file(f"{name}/{file}", repo, file)

    def send_file(self, key: str, repo: Repo, file: str) -> None:
        content = repo.files[file]
        fault = self.hub.next_fault() if repo.large(file) else ""
        if fault.isdecimal():
            return self.answer_json(int(fault), {}, [("Retry-After", "0")])
        start = self.start(content.size, fault)
        if start is None:
            return self.answer_json(416, {})
        self.send_response(206 if start else 200)
        shown = start + 5 if fault == "wrong range" else start
        if start:
            self.send_header("Content-Range", f"bytes {shown}-{content.size - 1}/{content.size}")
        if fault == "gzip":
            self.send_header("Content-Encoding", "gzip")
        if fault not in ("extra", "unsized") and not fault.startswith("early"):
            length = content.size - start - (fault == "short length")
            self.send_header("Content-Length", str(length))
        self.send_header("Connection", "close")
        self.close_connection = True
        self.end_headers()
        return self.send_body(key, content, start, fault)

    def start(self, size: int, fault: str) -> int | None:
        asked = self.headers.get("Range")
        if not asked or fault == "ignore range":
            return 0
        start = int(re.fullmatch(r"bytes=(\d+)-", asked)[1])
        return None if fault == "416" or start >= size else start

    def send_body(self, key: str, content: Content, start: int, fault: str) -> None:
        # Small, so that what is counted as sent is not much more than what was received.
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, PIECE)
        left = int(fault.split()[1]) if fault.startswith(("drop", "early")) else content.size
        for piece in content.pieces(start):
            data = bytes(len(piece)) if fault == "wrong bytes" else piece[:left]
            self.connection.sendall(data)
            self.hub.count(key, len(data))
            left -= len(data)
            if left <= 0:
                break
            if fault == "stall":
                return time.sleep(3)
            if self.hub.rate:
                time.sleep(len(data) / self.hub.rate)
        if fault == "extra":
            self.connection.sendall(b"0123456789")
        return None


def model_files(seed: int, size: int) -> dict[str, Content]:
    """What a folder with safetensors needs; nothing here is opened as a model."""
    return {
        "config.json": Fixed(b'{"model_type": "llama", "seed": %d}' % seed),
        "tokenizer.json": Fixed(b'{"seed": %d}' % seed),
        "model.safetensors": Content(seed, size),
        "pytorch_model.bin": Content(seed + 1, 1000),
        "README.md": Fixed(b"# a model"),
    }
