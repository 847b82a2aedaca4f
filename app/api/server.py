"""create_app: the endpoint around one assistant."""

from typing import Any

from fastapi import APIRouter, FastAPI
from starlette.middleware.cors import CORSMiddleware

from app.api import backups, completions, errors, models
from app.api.guard import Guard
from app.api.messages import route as messages
from app.api.responses import route as responses
from app.assistant import Assistant


def create_app(assistant: Assistant, host: str = "127.0.0.1") -> FastAPI:
    """The endpoint with and without the ``/v1`` prefix; ``host`` is the address it listens on.

    ``/v1`` is an application of its own, so that what it does not know is answered in its own
    shape and never by a page that is mounted beside it.
    """
    app, v1, routes = _bare(), _bare(), _routes(assistant)
    v1.include_router(routes)
    app.mount("/v1", v1)
    app.include_router(routes)
    app.include_router(backups.router(assistant.history))
    app.add_middleware(CORSMiddleware)  # allows no origin; without it Gradio would reflect any
    app.add_middleware(Guard, host=host)
    return app


def _bare() -> FastAPI:
    """No documentation pages: they load their scripts from other servers."""
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    errors.install(app)
    return app


def _routes(assistant: Assistant) -> APIRouter:
    routes = APIRouter()
    routes.include_router(completions.router(assistant))
    routes.include_router(responses.router(assistant))
    routes.include_router(messages.router(assistant))
    routes.include_router(models.router(assistant))

    @routes.get("/health")
    async def health() -> dict[str, Any]:
        return {"status": "ok", "model": assistant.entry.name}

    return routes
