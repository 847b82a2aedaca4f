"""The guard before every route, the page included: who may ask, and what browsers may do."""

import ipaddress
from collections.abc import Container, Sequence
from http import HTTPStatus
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.server.errors import MAX_BODY, Failure

WILDCARDS = frozenset({"", "0.0.0.0", "::"})  # noqa: S104 - every address of this machine
_LOCAL_NAMES = frozenset({"127.0.0.1", "localhost", "[::1]"})
_READING = frozenset({"GET", "HEAD"})

# Gradio's page starts from inline scripts and evaluates its templates; all else stays on this server.
_CONTENT_SECURITY_POLICY = "; ".join(
    (
        "default-src 'self'",
        "script-src 'self' 'unsafe-inline' 'unsafe-eval'",
        "style-src 'self' 'unsafe-inline'",
        "img-src 'self' data: blob:",
        "media-src 'self' data: blob:",
        "font-src 'self' data:",
        "connect-src 'self'",
        "worker-src 'self' blob:",
        "object-src 'none'",
        "base-uri 'self'",
        "form-action 'self'",
        "frame-ancestors 'none'",
    )
)
_SECURITY_HEADERS = {
    "content-security-policy": _CONTENT_SECURITY_POLICY,
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}


def literal(host: str) -> str:
    """``host`` for a URL: an IPv6 address gets brackets."""
    return f"[{host}]" if ":" in host else host


def _name(host: str) -> str | None:
    """The name in a Host header, without its port; None when it is not one."""
    try:
        parts = urlsplit(f"//{host}")
        name, _ = parts.hostname, parts.port  # a port that is no number raises here
    except ValueError:
        return None
    return literal(name) if name and parts.netloc == host and parts.username is None else None


class Guard:
    """Answers local names only, and changes nothing for the pages of other sites.

    A page of another site can make its own name point to this machine (DNS rebinding), so the
    Host must be a name that no other site controls; and browsers send some requests without
    asking, so whatever is not reading must come from a page of this very server, or of an origin
    that a person has listed.
    """

    def __init__(
        self, app: ASGIApp, host: str, names: Sequence[str] = (), origins: Container[str] = ()
    ) -> None:
        """``names`` are those that this server has besides its address; ``origins`` may ask, too."""
        self._app, self._origins = app, origins
        self._anywhere = host in WILDCARDS
        self._names = _LOCAL_NAMES | {literal(host), *names} - {""}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or say why not."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        failure = self._failure(scope)
        app = failure.response(scope) if failure else self._app
        await app(scope, _limited(receive), _with_headers(send))

    def _failure(self, scope: Scope) -> Failure | None:
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        if _name(host) not in self._names | self._asked_address(scope):
            known = ", ".join(sorted(self._names))
            more = ", its address, or a name listed in host_names" if self._anywhere else ""
            message = f"the host {host!r} is not this server; use one of {known}{more}"
            return Failure(400, message, code="invalid_host")
        if scope["type"] == "http" and scope["method"] in _READING:
            return None
        if is_foreign(scope) and headers.get("origin", "").lower() not in self._origins:
            message = "a page of another site asks; only this server's own page and programs may"
            return Failure(403, message, code="foreign_origin")
        return None

    def _asked_address(self, scope: Scope) -> frozenset[str]:
        """The address of this machine that was connected to, where it listens on all of them."""
        address = str((scope.get("server") or ("",))[0])
        try:
            ipaddress.ip_address(address)
        except ValueError:  # a name, which another site may control
            return frozenset()
        return frozenset({literal(address)} if self._anywhere else ())


def is_foreign(scope: Scope) -> bool:
    """Whether a browser says that another site asks; programs send none of these headers."""
    headers = Headers(scope=scope)
    scheme = "https" if scope["scheme"] in ("https", "wss") else "http"
    own = f"{scheme}://{headers.get('host', '')}"
    origin = headers.get("origin")
    if origin is not None and origin.lower() != own.lower():
        return True
    return headers.get("sec-fetch-site") == "cross-site"


def _limited(receive: Receive) -> Receive:
    """Whoever reads the body stops at the limit, whatever length was announced."""
    size = 0

    async def receive_limited() -> Message:
        nonlocal size
        message = await receive()
        size += len(message.get("body", b""))
        if size > MAX_BODY:
            raise HTTPException(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
        return message

    return receive_limited


def _with_headers(send: Send) -> Send:
    async def send_guarded(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in _SECURITY_HEADERS.items():
                headers.setdefault(name, value)
        await send(message)

    return send_guarded
