"""The connection to one engine: what is sent goes to its address and to no other, what comes is bounded."""

import asyncio
import json
import re
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from typing import Any

import httpx2
import openai
from typing_extensions import override

from app.chat.remote.chunks import Words
from app.errors import RemoteFailed
from app.remote_engine import RemoteEngine
from engine.errors import ContextOverflow

Body = dict[str, Any]

LONGEST_EVENT = 8 * 2**20  # bytes of one event of a stream, or of a whole body
_CONNECT_SECONDS, _LOOK_SECONDS = 10.0, 3.0  # to a machine that is there; for lists and metrics
_SAID = 400  # characters of an engine's own words in an error
_TRY_AGAIN = (502, 503)  # a program in front of the engine answered: nothing was read yet
_PAUSE_SECONDS = 0.5  # before that
_HEADERS = frozenset(  # that are sent; the library has others, also out of the environment
    ("host", "accept", "accept-encoding", "authorization", "connection", "content-length")
) | {"content-type", "user-agent"}
_AT_ONCE = 64  # events of a flood before others get their turn


class Connection:
    """Asks one engine; ``key`` is its API key, which no error repeats."""

    def __init__(self, engine: RemoteEngine, key: str | None) -> None:
        self.engine, self._key = engine, key
        self.words = Words()  # of its models
        self._client: openai.AsyncOpenAI | None = None

    async def stream(self, path: str, body: Body) -> AsyncGenerator[Mapping[str, Any]]:
        """The events of an answer; closing it ends the request at the engine.

        Raises RemoteFailed, ContextOverflow; it asks once more where nothing was answered yet.
        """
        try:
            answer = await self._open(path, body)
            async with answer:
                count = 0
                async for event in answer:
                    count += 1
                    if count % _AT_ONCE == 0:
                        await asyncio.sleep(0)
                    if isinstance(event, Mapping):  # others are not of this protocol
                        yield event
        except _FAILURES as error:
            raise self.failure(error) from error

    async def get(self, path: str) -> Any:
        """What a path below the address has, as JSON; raises RemoteFailed."""
        text = await self.get_text(f"{self.engine.address}{path}")
        try:
            return json.loads(text)
        except (ValueError, RecursionError) as error:
            raise self.failure(error) from error

    async def get_text(self, url: str) -> str:
        """The text at ``url`` of this engine; raises RemoteFailed."""
        try:
            response = await self._opened().get(
                url, cast_to=httpx2.Response, options={"timeout": _LOOK_SECONDS, **self._options}
            )
        except _FAILURES as error:
            raise self.failure(error) from error
        return response.text

    async def post(self, path: str, body: Body) -> Any:
        """The JSON that answers ``body``; raises RemoteFailed, ContextOverflow."""
        try:
            found: Any = await self._opened().post(
                path, cast_to=object, body=body, options=self._options
            )
        except _FAILURES as error:
            raise self.failure(error) from error
        return found

    @property
    def _options(self) -> openai.RequestOptions:
        """The engine's own key, whatever the environment has; without one no header of it is sent."""
        key = f"Bearer {self._key}" if self._key else openai.Omit()
        return {"headers": {"Authorization": key}}

    async def close(self) -> None:
        """Close what is open."""
        if self._client is not None:
            await self._client.close()

    async def _open(self, path: str, body: Body) -> "openai.AsyncStream[object]":
        for last in (False, True):
            try:
                return await self._opened().post(
                    path,
                    cast_to=object,
                    body=body,
                    options=self._options,
                    stream=True,
                    stream_cls=openai.AsyncStream[object],
                )
            except openai.APITimeoutError:
                raise
            except openai.APIConnectionError:
                if last:
                    raise
            except openai.APIStatusError as error:
                if last or error.status_code not in _TRY_AGAIN:
                    raise
            await asyncio.sleep(_PAUSE_SECONDS)
        raise AssertionError("the last attempt returns or raises")

    def _opened(self) -> openai.AsyncOpenAI:
        if self._client is None:
            engine = self.engine
            verify = ssl.create_default_context(cafile=engine.ca_file or None)
            wire = httpx2.AsyncHTTPTransport(verify=verify, trust_env=False)
            timeout = httpx2.Timeout(engine.timeout, connect=min(_CONNECT_SECONDS, engine.timeout))
            self._client = openai.AsyncOpenAI(
                base_url=engine.address,
                api_key=self._key or "none",
                max_retries=0,
                timeout=timeout,
                default_headers={"Accept-Encoding": "identity"},
                http_client=httpx2.AsyncClient(
                    transport=_Bounded(wire),
                    follow_redirects=False,
                    trust_env=False,
                    timeout=timeout,
                ),
            )
        return self._client

    def failure(self, error: Exception) -> Exception:
        """What happened, with whom, and what to do."""
        who = f"the engine {self.engine.name} ({self.engine.host})"
        match error:
            case openai.APITimeoutError():
                what = f"has sent nothing for {self.engine.timeout:g} seconds"
                return RemoteFailed(f"{who} {what}", 504, "engine_silent")
            case openai.APIConnectionError():
                return self._unreachable(who, error.__cause__ or error)
            case openai.APIStatusError():
                return self._refused(who, error)
            case openai.APIError():
                said = self._said(error)
                return _overflow(said, error.body) or RemoteFailed(
                    f"{who} ended the answer: {said}", 502, "engine_failed"
                )
            case httpx2.HTTPError():
                return self._unreachable(who, error)
            case _:
                what = "sent what is no answer in OpenAI's form; check its address, and its log"
                return RemoteFailed(f"{who} {what}", 502, "engine_answer_unreadable")

    def _unreachable(self, who: str, error: BaseException) -> RemoteFailed:
        what = self._clean(str(error)) or type(error).__name__
        if what == _NOBODY:
            what = "nothing answers at that address"
        if isinstance(error, _TooLongError):
            return RemoteFailed(f"{who} {what}", 502, "engine_answer_unreadable")
        connects = isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout)
        text = "cannot be reached" if connects else "broke the connection off"
        return RemoteFailed(f"{who} {text}: {what}", 502, "engine_unreachable")

    def _refused(self, who: str, error: openai.APIStatusError) -> Exception:
        status, said = error.status_code, self._said(error)
        if status in (400, 413, 422) and (overflow := _overflow(said, error.body)):
            return overflow
        if 300 <= status < 400:
            text = "sends requests on to another address, which is not followed; configure that one"
            return RemoteFailed(f"{who} {text}", 502, "engine_moved")
        if status in (401, 403):
            known = "does not take its API key" if self._key else "asks for an API key"
            text = f"{who} {known} ({status}); set key in [engines.{self.engine.name}]"
            return RemoteFailed(text, 502, "engine_key_refused")
        if status >= 500:
            return RemoteFailed(f"{who} failed ({status}): {said}", 502, "engine_failed")
        code = {404: "model_not_found", 429: "rate_limit_exceeded"}.get(status)
        later = error.response.headers.get("retry-after", "")
        return RemoteFailed(
            f"{who} refuses the request ({status}): {said}", status, code,
            retry_after=later if re.fullmatch(r"\d{1,6}", later) else None,
        )  # fmt: skip

    def _said(self, error: openai.APIError) -> str:
        """The engine's own words, if it has any for people."""
        body = error.body
        found = body.get("message") or body.get("detail") if isinstance(body, Mapping) else body
        text = found if isinstance(found, str) else json.dumps(found) if found else ""
        return (
            self._clean(text) if text.strip() and not text.lstrip().startswith("<") else "no reason"
        )

    def _clean(self, text: str) -> str:
        """One line that is not too long and has no key."""
        hidden = text.replace(self._key, "(its key)") if self._key else text
        line = "".join(char if char.isprintable() else " " for char in hidden)
        return line if len(line) <= _SAID else f"{line[:_SAID]} \u2026"


_NOBODY = "All connection attempts failed"  # of every address that a name has
_FAILURES = (openai.OpenAIError, httpx2.HTTPError, ValueError, RecursionError)
_OVERFLOW = re.compile(
    r"context.?(length|size|window)|(prompt|input).{0,40}(too long|longer than|exceeds the maximum)",
    re.IGNORECASE,
)
_HOLDS = re.compile(
    r"(?:context.?(?:length|size|window)|allowed length)\D{0,24}(\d+)", re.IGNORECASE
)
_TOKENS = re.compile(r"\b\d{1,9}\b(?! characters)")


def _overflow(said: str, body: object) -> ContextOverflow | RemoteFailed | None:
    """The prompt is too long: with both numbers, in whatever words the engine has for it."""
    fields = body if isinstance(body, Mapping) else {}
    kinds = (fields.get("code"), fields.get("type"))
    if not {"context_length_exceeded", "exceed_context_size_error"} & {*map(str, kinds)} and not (
        _OVERFLOW.search(said)
    ):
        return None
    needed, holds = fields.get("n_prompt_tokens"), fields.get("n_ctx")
    if isinstance(needed, int) and isinstance(holds, int):
        return ContextOverflow(needed, holds)
    stated = _HOLDS.search(said)
    most = max(map(int, _TOKENS.findall(said)), default=0)
    if stated and int(stated[1]) < most:
        return ContextOverflow(most, int(stated[1]))
    return RemoteFailed(said, 400, "context_length_exceeded")


class _TooLongError(httpx2.ReadError):
    """More came than any answer has."""


class _Bounded(httpx2.AsyncBaseTransport):
    """Sends requests, and breaks off what would not fit into memory."""

    def __init__(self, wire: httpx2.AsyncBaseTransport) -> None:
        self._wire = wire

    @override
    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        for name in {*request.headers.keys()} - _HEADERS:
            del request.headers[name]
        response = await self._wire.handle_async_request(request)
        if response.headers.get("content-encoding", "identity") != "identity":
            await response.aclose()
            raise _TooLongError("sends compressed answers though it was asked not to")
        assert isinstance(response.stream, httpx2.AsyncByteStream)
        events = response.headers.get("content-type", "").startswith("text/event-stream")
        response.stream = _Counted(response.stream, by_line=events)
        return response

    @override
    async def aclose(self) -> None:
        await self._wire.aclose()


class _Counted(httpx2.AsyncByteStream):
    """The bytes of a body; the count begins again with each line of a stream of events."""

    def __init__(self, stream: httpx2.AsyncByteStream, *, by_line: bool) -> None:
        self._stream, self._by_line = stream, by_line

    @override
    async def __aiter__(self) -> AsyncIterator[bytes]:
        count = 0
        async for part in self._stream:
            at = part.rfind(b"\n") if self._by_line else -1
            count = count + len(part) if at < 0 else len(part) - at - 1
            if count > LONGEST_EVENT:
                raise _TooLongError(f"sent more than {LONGEST_EVENT // 2**20} MiB at once")
            yield part

    @override
    async def aclose(self) -> None:
        await self._stream.aclose()
