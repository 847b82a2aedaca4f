"""The list of models: what this server answers with now."""

import time
from typing import Any

from fastapi import APIRouter

from app.chat.assistant import Assistant
from app.server.errors import ApiError, Failure


def check_served(assistant: Assistant, name: str) -> None:
    """Refuse any model but the loaded one; its name is what ``/v1/models`` lists."""
    if name != assistant.entry.name:
        message = (
            f"the model {name!r} is not loaded; this server answers as {assistant.entry.name!r} "
            "(start it with --model to serve another)"
        )
        raise ApiError(Failure(404, message, "model", "model_not_found"))


def router(assistant: Assistant) -> APIRouter:
    """The routes of the model list."""
    routes, started = APIRouter(), int(time.time())

    def loaded() -> dict[str, Any]:
        """The model that is loaded now: the page may have switched it."""
        return {
            "id": assistant.entry.name,
            "object": "model",
            "created": started,
            "owned_by": "local",
            "context_length": assistant.facts.context,
        }

    @routes.get("/models")
    async def list_models() -> dict[str, Any]:
        return {"object": "list", "data": [loaded()]}

    @routes.get("/models/{name:path}")
    async def show_model(name: str) -> dict[str, Any]:
        check_served(assistant, name)
        return loaded()

    return routes
