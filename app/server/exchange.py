"""What every request gets before its route: an id, a line in the log, HEAD, and its body unpacked."""

import logging
import re
import time
import uuid
import zlib
from collections.abc import Callable, Mapping, MutableMapping
from http import HTTPStatus
from typing import Any
from urllib.parse import quote

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.server.errors import MAX_BODY

ID_HEADERS = ("x-request-id", "request-id")  # OpenAI's name and Anthropic's
CLIENT_CLOSED_REQUEST = 499  # nginx's number; no client reads it
_GIVEN_ID = re.compile(r"[\w.:-]{1,128}", re.ASCII)
_JOINED = re.compile(r"/+(v1(/+v1)*(/+|$))?")  # the start of a path, as clients put it together
_GZIP, _ZLIB, _RAW = 31, 15, -15  # "wbits" of zlib
_CODINGS: Mapping[str, tuple[int, ...]] = {
    "gzip": (_GZIP,), "x-gzip": (_GZIP,),
    "deflate": (_ZLIB, _RAW),  # by its standard, and as some clients write it
}  # fmt: skip

logger = logging.getLogger(__name__)


class Exchange:
    """One request and its answer, under an id that is the client's own where it sent one.

    Whatever can be read can be asked for with HEAD: the server itself leaves the body out.
    """

    def __init__(self, app: ASGIApp, shown: Callable[[str], object] | None = None) -> None:
        """``shown`` takes the line of every request, which otherwise is in the log at level info."""
        self._app, self._shown = app, shown

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, and report it when it has ended."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        number, started = _request_id(scope), time.monotonic()
        status, whole = CLIENT_CLOSED_REQUEST, False

        async def send_numbered(message: Message) -> None:
            nonlocal status, whole
            if message["type"] == "http.response.start":
                status = message["status"]
                MutableHeaders(scope=message).update(dict.fromkeys(ID_HEADERS, number))
            else:
                whole = not message.get("more_body", False)
            await send(message)

        method = "GET" if scope["method"] == "HEAD" else scope["method"]
        state = {**scope.get("state", {}), "request_id": number}
        numbered = {**scope, "method": method, "path": _meant(scope["path"]), "state": state}
        try:
            await self._app(numbered, unpacked(scope, receive), send_numbered)
        finally:
            end = f"{status}" if whole else f"{status} broken off"
            self._report(scope, f"{end} {time.monotonic() - started:.3f}s {number}")

    def _report(self, scope: Scope, end: str) -> None:
        client = (scope.get("client") or ("?",))[0]
        line = f"{client} {scope['method']} {quote(scope['path'])} {end}"
        logger.info("%s", line)
        if self._shown is not None:
            self._shown(f"{time.strftime('%H:%M:%S')} {line}\n")


def _meant(path: str) -> str:
    """The path without the slashes and the second ``/v1`` of an address that ended in them."""
    joined = _JOINED.match(path)
    if joined is None:
        return path
    rest = path[joined.end() :]
    return f"/v1/{rest}".rstrip("/") if joined[1] else f"/{rest}"


def _request_id(scope: Scope) -> str:
    given = Headers(scope=scope).get(ID_HEADERS[0], "")
    return given if _GIVEN_ID.fullmatch(given) else f"req_{uuid.uuid4().hex}"


def unpacked(scope: Scope, receive: Receive) -> Receive:
    """The body as it was before the client compressed it; nothing unpacks to more than MAX_BODY."""
    coding = Headers(scope=scope).get("content-encoding", "").strip().lower()
    if coding in ("", "identity"):
        return receive
    packed, more = bytearray(), True

    async def receive_unpacked() -> MutableMapping[str, Any]:
        nonlocal more
        if not more:
            return await receive()
        _check_known(coding)
        while more:
            message = await receive()
            if message["type"] != "http.request":
                return message
            packed.extend(message.get("body", b""))
            more = message.get("more_body", False)
            if len(packed) > MAX_BODY:
                raise HTTPException(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
        return {"type": "http.request", "body": _unpack(coding, packed), "more_body": False}

    return receive_unpacked


def _check_known(coding: str) -> None:
    if coding not in _CODINGS:
        problem = f"the body is compressed as {coding!r}; send it as gzip, deflate, or as it is"
        headers = {"accept-encoding": "gzip, deflate"}
        raise HTTPException(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, problem, headers)


def _unpack(coding: str, packed: bytearray) -> bytes:
    for form in _CODINGS[coding]:
        unpacker = zlib.decompressobj(form)
        try:
            found = unpacker.decompress(packed, MAX_BODY + 1)
        except zlib.error:
            continue
        if len(found) > MAX_BODY:
            raise HTTPException(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
        if unpacker.eof and not unpacker.unused_data:
            return found
    problem = f"the body is not whole, or not compressed as {coding}"
    raise HTTPException(HTTPStatus.BAD_REQUEST, problem)
