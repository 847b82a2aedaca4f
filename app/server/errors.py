"""Failures in the shape that OpenAI's and Anthropic's clients read, for every route and every status."""

import logging
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.types import Scope

from app.errors import AppError, RemoteFailed, UnknownDrafter, UnknownModel, WorkerCrashed
from app.server.text_schemas import sendable
from engine.errors import ContextOverflow, EngineError, InvalidRequest, NumericalError

MAX_BODY = 8 * 2**20  # bytes of a request; the longest context is far below, as text

_ANTHROPIC = "anthropic-version"  # the header that its clients send
_ANTHROPICS_KINDS = {
    401: "authentication_error", 403: "permission_error", 404: "not_found_error",
    413: "request_too_large", 429: "rate_limit_error",
}  # fmt: skip

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Failure:
    """What one error answer says; ``message`` is a sentence for people."""

    status: int
    message: str
    param: str | None = None
    code: str | None = None
    retry_after: str | None = None  # seconds

    def body(self, scope: Scope) -> dict[str, Any]:
        """``{"error": ...}``, as a response body or as an event of a stream."""
        anthropics = _asked_by_anthropics(scope)
        kind = "invalid_request_error" if self.status < 500 else "server_error"
        if anthropics:
            kind = _ANTHROPICS_KINDS.get(self.status, kind.replace("server", "api"))
        param = None if self.param is None else sendable(self.param)
        details = {"type": kind, "param": param, "code": self.code}
        own = {"request_id": request_id(scope)} if anthropics else {}
        return {"type": "error", "error": {"message": sendable(self.message), **details}, **own}

    def response(self, scope: Scope) -> JSONResponse:
        """The answer; a header asks clients not to repeat what may be a long generation."""
        headers = {"x-should-retry": "false"} if self.status >= 500 else {}
        if self.retry_after is not None:
            headers["retry-after"] = self.retry_after
        return JSONResponse(self.body(scope), self.status, headers)


def request_id(scope: Scope) -> str:
    """The id of a request, which the log has, too."""
    return str(scope.get("state", {}).get("request_id", ""))


def _asked_by_anthropics(scope: Scope) -> bool:
    """Whether the route is Anthropic's, or its client asks for any other."""
    return "messages" in scope["path"].split("/")[1:3] or _ANTHROPIC in Headers(scope=scope)


class ApiError(AppError):
    """A failure that only HTTP knows, raised by a route."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


# the first that fits; the message of the error itself is shown
_KNOWN: tuple[tuple[type[Exception], int, str | None, str | None], ...] = (
    (ContextOverflow, 400, None, "context_length_exceeded"),
    (InvalidRequest, 400, None, None),
    (UnknownDrafter, 400, "drafter", None),
    (UnknownModel, 404, "model", "model_not_found"),
    (NumericalError, 500, None, "numerical_error"),
    (WorkerCrashed, 503, None, "engine_crashed"),
    (AppError, 500, None, None),
    (EngineError, 500, None, None),
)


def explain(error: Exception, scope: Scope) -> Failure:
    """The failure of ``error``; the details of an unexpected one are in the log only."""
    if isinstance(error, ApiError):
        return error.failure
    if isinstance(error, RemoteFailed):
        return Failure(error.status, str(error), code=error.code, retry_after=error.retry_after)
    for kind, status, param, code in _KNOWN:
        if isinstance(error, kind):
            return Failure(status, str(error), param, code)
    number = request_id(scope)
    logger.error("unexpected failure of %s", number, exc_info=error)
    told = f"something unexpected failed; the log of the server has the details of {number}"
    return Failure(500, told)


_OF_WHOLE_BODIES = ("missing", "model_attributes_type", "model_type", "dict_type")


def _explain_body(body: object) -> str:
    """What a body is that is no object; one that was not announced as JSON comes as its bytes."""
    if body is None:
        return "the request has no body; send a JSON object"
    if isinstance(body, bytes):
        return "the body was not announced as JSON; send the header Content-Type: application/json"
    return "the body must be a JSON object"


def _explain_validation(error: RequestValidationError) -> Failure:
    """The first thing wrong with the body; 400, where FastAPI alone would say 422."""
    first = error.errors()[0]
    if first["loc"] == ("body",) and first["type"] in _OF_WHOLE_BODIES:
        return Failure(400, _explain_body(error.body))
    context = first.get("ctx", {})
    if first["type"] == "json_invalid":  # its place is a number of characters, and no field
        wrong, at = str(context["error"]).removesuffix(" at"), first["loc"][-1]
        problem = f"{wrong[:1].lower()}{wrong[1:]} at character {at}"
        return Failure(400, f"the body is not JSON: {problem}")
    place = ".".join(str(step) for step in first["loc"][1:])
    param = context.get("param", place or None)
    message = first["msg"][:1].lower() + first["msg"][1:]
    code = "unsupported" if first["type"] == "unsupported" else None
    return Failure(400, f"{param}: {message}" if param else message, param, code)


def _explain_status(request: Request, error: HTTPException) -> Failure:
    where = f"{request.method} {request.url.path}"
    match error.status_code:
        case HTTPStatus.NOT_FOUND:
            return Failure(404, f"there is no {where}", code="unknown_url")
        case HTTPStatus.METHOD_NOT_ALLOWED:
            return Failure(405, f"{where} needs another method", code="method_not_allowed")
        case HTTPStatus.REQUEST_ENTITY_TOO_LARGE:
            return Failure(413, f"the request is larger than {MAX_BODY // 2**20} MiB; shorten it")
        case status if isinstance(error.__cause__, UnicodeDecodeError):
            at = error.__cause__.start
            return Failure(
                status, f"the body is not UTF-8: byte {at + 1} is not; send JSON as UTF-8"
            )
        case status:
            return Failure(status, f"{where}: {error.detail}")


async def on_status(request: Request, error: HTTPException) -> JSONResponse:
    """The answer to what no route takes."""
    response = _explain_status(request, error).response(request.scope)
    response.headers.update(error.headers or {})
    return response


def install(app: FastAPI) -> None:
    """Make ``app`` answer every failure in this shape."""

    @app.exception_handler(RequestValidationError)
    async def on_validation(request: Request, error: RequestValidationError) -> JSONResponse:
        return _explain_validation(error).response(request.scope)

    app.add_exception_handler(HTTPException, on_status)  # type: ignore[arg-type]  # it is declared for all

    @app.exception_handler(AppError)
    @app.exception_handler(EngineError)
    @app.exception_handler(Exception)
    async def on_failure(request: Request, error: Exception) -> JSONResponse:
        return explain(error, request.scope).response(request.scope)
