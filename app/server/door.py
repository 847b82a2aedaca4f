"""The door: where it is closed, every route asks for an API key, and the page for a login."""

import asyncio
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import cast
from urllib.parse import parse_qs

from fastapi.responses import HTMLResponse, RedirectResponse
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.keys.key_file import Key, Keys
from app.keys.visits import Limits, Sessions, TooManyRequests
from app.server.errors import Failure
from app.server.guard import is_foreign

LOGIN, LOGOUT, FIELD = "/login", "/logout", "key"
OF_THE_PAGE = "/gradio_api"  # its events and files: one answer takes several requests
MOST_OF_A_FORM = 8192  # bytes
LOOK_SECONDS = 0.5  # until an answer ends whose key was withdrawn
_BEARER = "bearer "
_SENT = "send it as 'Authorization: Bearer KEY' or as 'x-api-key: KEY'"
_NONE = f"this server asks for an API key; {_SENT}"
_UNKNOWN = f"this API key does not exist, or was withdrawn; ask for a new one, and {_SENT}"
_WRONG = "This key does not exist, or was withdrawn."

LoginPage = Callable[[str], str]  # HTML with a form; the argument says what was wrong


@dataclass(frozen=True, slots=True)
class Access:
    """Who may ask."""

    keys: Keys | None = None  # None: no key is asked for
    page: LoginPage | None = None  # None: there is no page, only the API
    names: tuple[str, ...] = ()  # of this server, besides its address
    origins: tuple[str, ...] = ()  # pages of other sites that may ask
    limits: Limits = field(default_factory=Limits)


@dataclass(frozen=True, slots=True)
class _Visitor:
    """Who asks: a program with a key, or a browser that has logged in."""

    key: Key
    token: str = ""  # of the browser


def owner(scope: Scope) -> str | None:
    """Whose conversations a request sees: the name of its key; None: no key is asked for."""
    found = scope.get("state", {}).get("owner")
    return None if found is None else str(found)


def admit(scope: Scope) -> Callable[[], None]:
    """Count an answer that the page starts as a request of its key; call the result at its end.

    Raises TooManyRequests.
    """
    begin = scope.get("state", {}).get("admit", lambda: _nothing)
    return cast("Callable[[], None]", begin())


def _nothing() -> None:
    """No key is asked for, so none has limits."""


class Door:
    """Lets nobody in without a key: all that is open is the form that asks for one.

    A key that is withdrawn, and a browser that logs out, also end the answers that are being sent.
    """

    def __init__(
        self, app: ASGIApp, keys: Keys, limits: Limits, page: LoginPage | None = None
    ) -> None:
        self._app, self._keys, self._page = app, keys, page
        self._sessions, self._limits = Sessions(), limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on with its owner, or refuse it."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        visitor, asked = self._visitor(scope), (scope.get("method"), scope["path"])
        if asked == ("POST", LOGIN) and self._page is not None:
            response: Response = await self._log_in(self._page, scope, receive)
        elif visitor is None:
            response = self._refusal(scope)
        elif asked == ("POST", LOGOUT):
            response = self._log_out(visitor, scope)
        elif asked == ("GET", LOGIN):
            response = RedirectResponse("/", 303)
        else:
            await self._admit(visitor, scope, receive, send)
            return
        await response(scope, receive, send)

    def _visitor(self, scope: Scope) -> _Visitor | None:
        """A key in a header counts before a cookie, which only the server's own page sends."""
        headers = Headers(scope=scope)
        given = [*_keys_in(headers)]
        if given or is_foreign(scope):
            found = next((key for one in given if (key := self._keys.find(one))), None)
            return None if found is None else _Visitor(found)
        token = Request(scope).cookies.get(_cookie(scope), "") if scope["type"] == "http" else ""
        known = self._sessions.key(token)
        visitor = None if known is None else _Visitor(known, token)
        return visitor if visitor is not None and self._stays(visitor) else None

    def _stays(self, visitor: _Visitor) -> bool:
        if visitor.token and self._sessions.key(visitor.token) is None:
            return False
        return self._keys.holds(visitor.key)

    def _refusal(self, scope: Scope) -> Response:
        headers = Headers(scope=scope)
        if self._page is not None and _is_a_person(scope, headers):
            return _form(self._page(""))
        told = _UNKNOWN if any(_keys_in(headers)) else _NONE
        response = Failure(401, told, code="invalid_api_key").response(scope)
        response.headers["www-authenticate"] = "Bearer"
        return response

    async def _log_in(self, page: LoginPage, scope: Scope, receive: Receive) -> Response:
        try:
            key = self._keys.find(await _written_key(receive))
        except HTTPException as error:  # of the body: no route is there to answer it
            return Failure(error.status_code, str(error.detail)).response(scope)
        if key is None:
            return _form(page(_WRONG))
        response = RedirectResponse("/", 303)
        token, secure = self._sessions.begin(key), scope["scheme"] == "https"
        response.set_cookie(_cookie(scope), token, httponly=True, samesite="strict", secure=secure)
        return response

    def _log_out(self, visitor: _Visitor, scope: Scope) -> Response:
        self._sessions.end(visitor.token)
        response = RedirectResponse("/", 303)
        response.delete_cookie(_cookie(scope), httponly=True, samesite="strict")
        return response

    async def _admit(self, visitor: _Visitor, scope: Scope, receive: Receive, send: Send) -> None:
        counted = not visitor.token or _is_a_request(scope)
        key = visitor.key
        more = {"owner": key.name, "admit": partial(self._limits.begin, key)}
        owned = {**scope, "state": {**scope.get("state", {}), **more}}
        try:
            with self._limits.request(key) if counted else nullcontext():
                await self._answer(visitor, owned, receive, send)
        except TooManyRequests as error:
            failure = Failure(429, str(error), code="rate_limit_exceeded")
            response = failure.response(scope)
            response.headers["retry-after"] = str(error.seconds)
            await response(scope, receive, send)

    async def _answer(self, visitor: _Visitor, scope: Scope, receive: Receive, send: Send) -> None:
        """The answer, which breaks off where its visitor may no longer see it."""
        sent = _Sent(send)
        work = asyncio.ensure_future(self._app(scope, receive, sent))
        leaving = asyncio.ensure_future(self._end_of(visitor))
        try:
            await asyncio.wait({work, leaving}, return_when=asyncio.FIRST_COMPLETED)
            ended = work.done()
            if ended:
                work.result()
        finally:
            for task in (work, leaving):
                task.cancel()
            await asyncio.gather(work, leaving, return_exceptions=True)  # what they clean up
        if ended:
            return
        if not sent.begun:
            await self._refusal(scope)(scope, receive, send)
        elif not sent.whole:
            await send({"type": "http.response.body", "body": b""})

    async def _end_of(self, visitor: _Visitor) -> None:
        while self._stays(visitor):
            await asyncio.sleep(LOOK_SECONDS)


class _Sent:
    """Passes on what is sent, and knows how far it is."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.begun = self.whole = False

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.begun = True
        else:
            self.whole = not message.get("more_body", False)
        await self._send(message)


async def _written_key(receive: Receive) -> str:
    """What was written in the form; nothing of a body that is no such form."""
    body, more = b"", True
    while more and len(body) <= MOST_OF_A_FORM:
        message = await receive()
        body += message.get("body", b"")
        more = message.get("more_body", False)
    whole = not more and len(body) <= MOST_OF_A_FORM
    fields = parse_qs(body.decode("utf-8", "replace")) if whole else {}
    return fields.get(FIELD, [""])[0].strip()


def _keys_in(headers: Headers) -> list[str]:
    """What the headers give as keys, as OpenAI's and Anthropic's clients do."""
    found = [one.strip() for one in headers.getlist("x-api-key")]
    given = (value for value in headers.getlist("authorization") if _is_bearer(value))
    return found + [value[len(_BEARER) :].strip() for value in given]


def _is_bearer(value: str) -> bool:
    return value.lower().startswith(_BEARER)


def _cookie(scope: Scope) -> str:
    """Browsers send cookies to every port of a host, so that each server needs a name of its own."""
    return f"slipstream-{(scope.get('server') or ('', ''))[1]}"


def _is_a_person(scope: Scope, headers: Headers) -> bool:
    """Whether a browser asks for a page; what programs ask for is refused as programs expect."""
    of_the_api = scope["path"].startswith(("/v1/", OF_THE_PAGE))
    reads = scope["type"] == "http" and scope["method"] == "GET"
    return reads and not of_the_api and "text/html" in headers.get("accept", "")


def _is_a_request(scope: Scope) -> bool:
    """Whether a request of the page counts like a program's; its files and events do not."""
    changes = scope["type"] == "http" and scope["method"] not in ("GET", "HEAD")
    return changes and not scope["path"].startswith(OF_THE_PAGE)


def _form(page: str) -> Response:
    # under "no-referrer" a browser hides from which page a form was sent, and the guard refuses it
    headers = {"referrer-policy": "same-origin", "cache-control": "no-store"}
    return HTMLResponse(page, 401, headers)
