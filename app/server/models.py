"""The list of models: what this server answers with now."""

import time
from typing import Any

from fastapi import APIRouter

from app.chat.assistant import Assistant
from app.model_names import did_you_mean, is_named
from app.server.errors import ApiError, Failure


def check_served(assistant: Assistant, name: str) -> None:
    """Refuse any model but the loaded one; its name may be written as people and programs do."""
    served = assistant.entry
    if not any(is_named(own, name) for own in (served.name, served.repo or "")):
        known = (each for each in assistant.models() if each.folder and each.visible)
        here = {served.name, *(each.name for each in known)}
        message = (
            f"the model {name!r} is not loaded{did_you_mean(name, here) or ';'} this server answers "
            f"as {served.name!r} (start it with --model to serve another)"
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
