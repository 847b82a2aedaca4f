"""The two routes that answer: a chat's next message, and the rest of a text."""

from fastapi import APIRouter, Request
from fastapi.responses import Response

from app.api.answer import ChatAnswer, TextAnswer
from app.api.models import check_served
from app.api.respond import respond
from app.api.schemas import ChatRequest, CompletionRequest
from app.assistant import Assistant


def router(assistant: Assistant) -> APIRouter:
    """The routes."""
    routes = APIRouter()

    @routes.post("/chat/completions", response_model=None)
    async def chat(body: ChatRequest, request: Request) -> Response:
        check_served(assistant, body.model)
        reader = None if body.use is None else await assistant.call_reader(body.use)
        shape = ChatAnswer(body.model, assistant.token_bytes, reader)
        return await respond(body, assistant.reply(body.turn), shape, request)

    @routes.post("/completions", response_model=None)
    async def complete(body: CompletionRequest, request: Request) -> Response:
        check_served(assistant, body.model)
        shape = TextAnswer(body.model, assistant.token_bytes, body.prompt)
        return await respond(body, assistant.reply(body.turn), shape, request)

    return routes
