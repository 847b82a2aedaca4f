"""The two routes that answer: a chat's next message, and the rest of a text."""

from fastapi import APIRouter, Request
from fastapi.responses import Response

from app.chat.assistant import Assistant
from app.server.models import check_served
from app.server.openai_chat.answer import ChatAnswer, Envelope, TextAnswer
from app.server.openai_chat.completion_schemas import CompletionBody
from app.server.openai_chat.respond import respond
from app.server.openai_chat.schemas import ChatBody


def router(assistant: Assistant) -> APIRouter:
    """The routes."""
    routes = APIRouter()

    @routes.post("/chat/completions", response_model=None)
    async def chat(body: ChatBody, request: Request) -> Response:
        check_served(assistant, body.model)
        envelope, turns = Envelope(body.model, "chatcmpl"), body.turns
        shapes = [
            ChatAnswer(
                envelope,
                index,
                assistant.token_bytes,
                None if body.use is None else await assistant.call_reader(body.use),
            )
            for index in range(len(turns))
        ]
        return await respond(body, [*map(assistant.reply, turns)], shapes, request)

    @routes.post("/completions", response_model=None)
    async def complete(body: CompletionBody, request: Request) -> Response:
        check_served(assistant, body.model)
        envelope, turns = Envelope(body.model, "cmpl"), body.turns
        shapes = [
            TextAnswer(envelope, index, assistant.token_bytes, body.prompt)
            for index in range(len(turns))
        ]
        return await respond(body, [*map(assistant.reply, turns)], shapes, request)

    return routes
