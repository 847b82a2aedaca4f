"""The list of models: what this server answers with now."""

import time
from datetime import UTC, datetime
from typing import Any, TypeVar

from fastapi import APIRouter

from app.chat.assistant import Assistant
from app.model_names import did_you_mean, is_named
from app.server.description import answered
from app.server.errors import ApiError, Failure
from app.server.request_body import RequestBody

BodyT = TypeVar("BodyT", bound=RequestBody)
MODEL = ("id", "created", "created_at", "owned_by", "context_length", "display_name")


def served(assistant: Assistant, body: BodyT) -> BodyT:
    """The body with the name of the model that answers it. Raises ApiError, see ``check_served``."""
    check_served(assistant, body.model)
    return body if body.model else body.model_copy(update={"model": assistant.entry.name})


def check_served(assistant: Assistant, name: str) -> None:
    """Refuse any model but the loaded one; its name may be written as people and programs do.

    No name means the loaded one.
    """
    served = assistant.entry
    if name and not is_named(served.name, name, served.repo or ""):
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
        """The model that is loaded now, as OpenAI and as Anthropic list it: the page may have switched it."""
        name, context = assistant.entry.name, assistant.facts.context
        return {
            "id": name,
            "object": "model",
            "created": started,
            "owned_by": "local",
            "context_length": context,
            "type": "model",
            "display_name": name,
            "created_at": datetime.fromtimestamp(started, UTC).isoformat(),
            "lifecycle": "active",
            "max_input_tokens": context,
            "max_tokens": context,
        }

    @routes.get(
        "/models", responses=answered({"object": "list"}, "data", "first_id", "last_id", "has_more")
    )
    async def list_models(after_id: str = "", before_id: str = "") -> dict[str, Any]:
        """One page; Anthropic's clients ask what comes before or after a model."""
        data = [] if assistant.entry.name in (after_id, before_id) else [loaded()]
        name = assistant.entry.name if data else None
        return {
            "object": "list",
            "data": data,
            "first_id": name,
            "last_id": name,
            "has_more": False,
        }

    @routes.get(
        "/models/{name:path}", responses=answered({"object": "model", "type": "model"}, *MODEL)
    )
    async def show_model(name: str) -> dict[str, Any]:
        check_served(assistant, name)
        return loaded()

    return routes
