"""The route of responses."""

from fastapi import APIRouter, Request
from fastapi.responses import Response

from app.chat.assistant import Assistant
from app.server.models import check_served
from app.server.named_events import tell
from app.server.openai_responses.answer import ResponseAnswer
from app.server.openai_responses.schemas import ResponsesBody


def router(assistant: Assistant) -> APIRouter:
    """The route."""
    routes = APIRouter()

    @routes.post("/responses", response_model=None)
    async def answer(body: ResponsesBody, request: Request) -> Response:
        check_served(assistant, body.model)
        reader = None if body.use is None else await assistant.call_reader(body.use)
        telling = ResponseAnswer(body, assistant.token_bytes, reader)
        return await tell(body, assistant.reply(body.turn), telling, request)

    return routes
