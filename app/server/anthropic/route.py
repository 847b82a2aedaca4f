"""The routes of messages: one that answers, and one that counts."""

from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response

from app.chat.assistant import Assistant
from app.server.anthropic.answer import MessageAnswer
from app.server.anthropic.schemas import CountBody, MessagesBody
from app.server.models import check_served
from app.server.named_events import tell


def router(assistant: Assistant) -> APIRouter:
    """The routes."""
    routes = APIRouter()

    @routes.post("/messages", response_model=None)
    async def answer(body: MessagesBody, request: Request) -> Response:
        check_served(assistant, body.model)
        reader = None if body.use is None else await assistant.call_reader(body.use)
        return await tell(body, assistant.reply(body.turn), MessageAnswer(body, reader), request)

    @routes.post("/messages/count_tokens")
    async def count(body: CountBody) -> dict[str, Any]:
        check_served(assistant, body.model)
        return {"input_tokens": await assistant.prompt_tokens(body.turn)}

    return routes
