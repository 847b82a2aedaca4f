"""create_app: the endpoint of one assistant."""

from collections.abc import Callable
from typing import Any

from fastapi import APIRouter, FastAPI
from starlette.middleware.cors import CORSMiddleware
from starlette.routing import BaseRoute, Match
from starlette.types import Receive, Scope, Send
from typing_extensions import override

from app.chat.assistant import Assistant
from app.server import backups, errors, metrics, models
from app.server.anthropic import answer as messages
from app.server.description import FAILURES, answered
from app.server.door import Access, Door
from app.server.exchange import ID_HEADERS, Exchange
from app.server.guard import Guard
from app.server.openai_chat import answer as completions
from app.server.openai_responses import answer as responses

_METHODS = ("GET", "HEAD", "POST", "DELETE")


def create_app(
    assistant: Assistant,
    host: str = "127.0.0.1",
    shown: Callable[[str], object] | None = None,
    access: Access | None = None,
) -> FastAPI:
    """The endpoint with and without the ``/v1`` prefix; ``host`` is the address it listens on.

    ``shown`` takes a line for every request; ``access`` says who may ask.

    ``/v1`` is an application of its own, so that what it does not know is answered in its own
    form and never by a page that is mounted on the same server.
    """
    access = access or Access()
    app, v1 = _bare(), _bare("/openapi.json")
    v1.include_router(_routes(assistant))
    app.router.routes.append(_Unprefixed(v1))
    app.mount("/v1", v1)
    app.include_router(backups.router(assistant.history))
    if access.keys is not None:
        app.add_middleware(Door, keys=access.keys, limits=access.limits, page=access.page)
    app.add_middleware(  # also without an origin, as Gradio would reflect any
        CORSMiddleware,
        allow_origins=access.origins,
        allow_methods=_METHODS,
        allow_headers=["*"] if access.origins else (),
        expose_headers=(*ID_HEADERS, "retry-after"),
    )
    app.add_middleware(Guard, host=host, names=access.names, origins=access.origins)
    app.add_middleware(Exchange, shown=shown)
    return app


class _Unprefixed(BaseRoute):
    """The same routes without a prefix. A wrong method is refused here, too, not by a page."""

    def __init__(self, v1: FastAPI) -> None:
        self._v1 = v1

    @override
    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Whether one of them has the path; the prefix alone is none of the page's paths either."""
        if scope["path"] == "/v1":
            return Match.FULL, {}
        found = (route.matches(scope)[0] for route in self._v1.router.routes)
        return (Match.NONE if all(match is Match.NONE for match in found) else Match.FULL), {}

    @override
    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer as with the prefix."""
        await self._v1(scope, receive, send)


def _bare(description: str | None = None) -> FastAPI:
    """No documentation pages: they load their scripts from other servers."""
    app = FastAPI(
        title="Slipstream",
        openapi_url=description,
        docs_url=None,
        redoc_url=None,
        responses=FAILURES,
    )
    errors.install(app)
    return app


def _routes(assistant: Assistant) -> APIRouter:
    routes = APIRouter()
    routes.include_router(completions.router(assistant))
    routes.include_router(responses.router(assistant))
    routes.include_router(messages.router(assistant))
    routes.include_router(models.router(assistant))
    routes.include_router(metrics.router(assistant))

    @routes.get("/health", responses=answered({"status": "ok"}, "model"))
    async def health() -> dict[str, Any]:
        return {"status": "ok", "model": assistant.entry.name}

    return routes
