"""The list of models: what this server answers with now."""

import time
from datetime import UTC, datetime
from typing import Any, TypeVar

from fastapi import APIRouter

from app.chat.assistant import Assistant
from app.model_names import did_you_mean, is_named
from app.models.catalog import CatalogEntry
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
    """Refuse any model but the loaded one and those of other engines; raises ApiError.

    The loaded one's name may be written as people and programs do. No name means what answers now.
    """
    served = assistant.current.named(name).entry
    if not name or name == served.name or is_named(served.name, name, served.repo or ""):
        return
    known = (each for each in assistant.models() if each.usable and each.visible)
    here = {served.name, *(each.name for each in known)}
    message = (
        f"the model {name!r} is not loaded{did_you_mean(name, here) or ';'} this server answers "
        f"as {served.name!r} (start it with --model to serve another)"
    )
    raise ApiError(Failure(404, message, "model", "model_not_found"))


def router(assistant: Assistant) -> APIRouter:
    """The routes of the model list."""
    routes, started = APIRouter(), int(time.time())

    def described(model: CatalogEntry) -> dict[str, Any]:
        """A model as OpenAI and as Anthropic list it."""
        known = (
            {} if model.remote else {"context": assistant.current.named(model.name).facts.context}
        )
        context = known.get("context") or model.context
        return {
            "id": model.name,
            "object": "model",
            "created": started,
            "owned_by": model.remote or "local",
            "context_length": context,
            "type": "model",
            "display_name": model.name,
            "created_at": datetime.fromtimestamp(started, UTC).isoformat(),
            "lifecycle": "active",
            "max_input_tokens": context,
            "max_tokens": context,
        }

    @routes.get(
        "/models", responses=answered({"object": "list"}, "data", "first_id", "last_id", "has_more")
    )
    async def list_models(after_id: str = "", before_id: str = "") -> dict[str, Any]:
        """The loaded model and those of other engines; Anthropic's clients ask what is next to one."""
        await assistant.current.ask_engines()
        data = [*map(described, assistant.current.served())]
        names = [one["id"] for one in data]
        if after_id in names:
            data = data[names.index(after_id) + 1 :]
        if before_id in names:
            data = data[: names.index(before_id)]
        return {
            "object": "list",
            "data": data,
            "first_id": data[0]["id"] if data else None,
            "last_id": data[-1]["id"] if data else None,
            "has_more": False,
        }

    @routes.get(
        "/models/{name:path}", responses=answered({"object": "model", "type": "model"}, *MODEL)
    )
    async def show_model(name: str) -> dict[str, Any]:
        check_served(assistant, name)
        return described(assistant.current.named(name).entry)

    return routes
