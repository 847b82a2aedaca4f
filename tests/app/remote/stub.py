"""An engine that is already there: HTTP as vLLM and SGLang speak it, with answers that are known before.

It is a real server in a thread of its own. It keeps what it was asked, and spoils answers on demand.
"""

import asyncio
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Self

from tests.app.remote.dialects import SGLANG, VLLM, Answered, Dialect, Json, encoded
from tests.app.remote.faults import DONE, EVENTS, Act, Answer, Fault, Part, event, whole
from tests.app.remote.words import prompt_tokens, say
from tests.waiting import wait_for

CHAT, TEXT, MODELS = "/v1/chat/completions", "/v1/completions", "/v1/models"
CONTEXT = 4096  # words of the longest prompt
MODEL, THINKER = "qwen3-32b", "org/thinker-8b"
DIALECTS = {dialect.name: dialect for dialect in (VLLM, SGLANG)}


@dataclass
class Seen:
    """A request, and how it ended."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: Any
    left: threading.Event = field(default_factory=threading.Event)  # the client, before the end
    ended: threading.Event = field(default_factory=threading.Event)

    @property
    def key(self) -> str:
        return self.headers.get("authorization", "").removeprefix("Bearer ")


class Stub:
    """The engine; every attribute may be changed between two requests."""

    def __init__(self, dialect: Dialect = VLLM, key: str | None = None) -> None:
        self.dialect, self.key, self.port = dialect, key, 0
        self.models: tuple[str, ...] = (MODEL, THINKER)
        self.requests: list[Seen] = []
        self.faults: dict[str, Fault] = {}  # path -> what happens to its answers
        self.words: int | None = None  # of every answer
        self.pace = 0.0  # seconds between two parts of an answer
        self.slices = 0  # bytes of one HTTP chunk; 0: as they come
        self.most_logprobs = 5
        self.answers = 0
        self.detailed = False  # whether vLLM counts the drafts of each answer
        self._open: set[asyncio.StreamWriter] = set()

    # --- its life -------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._thread.is_alive():
            self.stop()

    def start(self) -> None:
        """Again on the same port, where it was stopped."""
        self._loop, ready = asyncio.new_event_loop(), threading.Event()
        self._stopping = asyncio.Event()
        self._thread = threading.Thread(
            target=lambda: self._loop.run_until_complete(self._run(ready))
        )
        self._thread.start()
        assert ready.wait(10)

    def stop(self) -> None:
        """As when its machine is switched off: whatever it was sending ends there."""
        self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join(10)
        assert not self._thread.is_alive()
        self._loop.close()

    async def _run(self, ready: threading.Event) -> None:
        server = await asyncio.start_server(self._serve, "127.0.0.1", self.port, limit=2**26)
        self.port = server.sockets[0].getsockname()[1]
        ready.set()
        await self._stopping.wait()
        server.close()
        for writer in [*self._open]:
            writer.transport.abort()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    @property
    def asked(self) -> list[Seen]:
        """The requests for answers."""
        return [seen for seen in self.requests if seen.method == "POST"]

    def forget(self) -> None:
        """What it was asked, and how it was told to answer."""
        self.requests.clear()
        self.faults.clear()
        self.words, self.pace, self.slices, self.most_logprobs = None, 0.0, 0, 5

    @contextmanager
    def spoiling(self, fault: Fault, path: str = CHAT, times: int | None = None) -> Iterator[None]:
        """Every answer of this path, or the first so and so many."""
        left = [times]

        def spoil(answer: Answer) -> Answer:
            if left[0] is None:
                return fault(answer)
            left[0] -= 1
            return fault(answer) if left[0] >= 0 else answer

        self.faults[path] = spoil
        try:
            yield
        finally:
            del self.faults[path]

    # --- HTTP -----------------------------------------------------------------------------------------

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.add(writer)
        gone = (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError)
        with suppress(*gone):
            while await self._exchange(reader, writer):
                pass
        self._open.discard(writer)
        writer.close()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """One request; returns whether the connection stays."""
        seen = await _received(reader)
        self.requests.append(seen)
        answer = self._answer(seen)
        if seen.path in self.faults:
            answer = self.faults[seen.path](answer)
        sending = asyncio.ensure_future(self._send(answer, writer))
        leaving = asyncio.ensure_future(reader.read(1))  # nobody sends before the answer has ended
        try:
            await asyncio.wait((sending, leaving), return_when=asyncio.FIRST_COMPLETED)
            if not sending.done():
                seen.left.set()
                return False
            return sending.result()
        except ConnectionError:
            seen.left.set()
            raise
        finally:
            for task in (sending, leaving):
                task.cancel()
            await asyncio.gather(sending, leaving, return_exceptions=True)
            seen.ended.set()

    async def _send(self, answer: Answer, writer: asyncio.StreamWriter) -> bool:
        if answer.before is not None:
            return await _act(answer.before)
        framing = ("transfer-encoding", "chunked")
        if answer.length is not None:
            framing = ("content-length", str(answer.length))
        lines = [f"HTTP/1.1 {answer.status} {HTTPStatus(answer.status).phrase}"]
        headers = (("content-type", answer.kind), framing, *answer.headers)
        lines += [f"{name}: {value}" for name, value in headers]
        writer.write("\r\n".join([*lines, "", ""]).encode())
        for part in answer.parts:
            if isinstance(part, Act):
                await writer.drain()
                return await _act(part)
            for piece in self._sliced(part):
                framed = b"%x\r\n%b\r\n" % (len(piece), piece) if answer.streams else piece
                writer.write(framed)
                await writer.drain()
            if self.pace:
                await asyncio.sleep(self.pace)
        if answer.streams:
            writer.write(b"0\r\n\r\n")
        await writer.drain()
        return True

    def _sliced(self, part: bytes) -> Iterator[bytes]:
        step = self.slices or len(part) or 1
        yield from (part[at : at + step] for at in range(0, len(part), step))

    # --- answers --------------------------------------------------------------------------------------

    def _answer(self, seen: Seen) -> Answer:
        open_to_all = seen.path in ("/health", "/metrics")
        if self.key is not None and not open_to_all and seen.key != self.key:
            return whole(encoded({"error": "Unauthorized"}), 401)  # as both write it
        if seen.path in (CHAT, TEXT):
            return self._completion(seen)
        cards = [self.dialect.card(name, CONTEXT) for name in self.models]
        found = {
            MODELS: whole(encoded({"object": "list", "data": cards})),
            "/health": whole(b""),
            "/metrics": whole(
                self.dialect.metrics(self.models[0], self.answers).encode(), kind="text/plain"
            ),
        }
        return found.get(seen.path, whole(encoded({"detail": "Not Found"}), 404))

    def _completion(self, seen: Seen) -> Answer:
        refused = self._refused(seen)
        if refused is not None:
            return whole(encoded(refused[1]), refused[0])
        body, chat = seen.body, seen.path == CHAT
        count = (body.get("n") or 1) * (1 if chat else len(_prompts(body)))
        thinks = chat and body["model"] == THINKER and body.get("reasoning_effort") != "none"
        said = [say(body, at, thinks=thinks, words=self.words) for at in range(count)]
        self.answers += 1
        known = (body["model"], said, prompt_tokens(body), body, self.detailed)
        answered = Answered(self.answers, *known)
        if not body.get("stream"):
            found = self.dialect.chat(answered) if chat else self.dialect.text(answered)
            return whole(encoded(found))
        chunks = self.dialect.chat_chunks(answered) if chat else self.dialect.text_chunks(answered)
        events: list[Part] = [b"data: " + encoded(each) + b"\n\n" for each in chunks]
        return Answer(200, (*events, DONE), EVENTS)

    def _refused(self, seen: Seen) -> tuple[int, Json] | None:
        """The status and the error of what the engine does not answer."""
        body, dialect = seen.body, self.dialect
        wanted = "messages" if seen.path == CHAT else "prompt"
        if not isinstance(body, dict) or not body.get(wanted):
            text = f"1 validation error:\n  {{'type': 'missing', 'loc': 'body.{wanted}'}}"
            return 400, dialect.error(400, text, "Bad Request")
        model = body.get("model", "")
        if dialect is VLLM and model not in self.models:  # SGLang answers under any name
            text = f"The model `{model}` does not exist. Valid aliases: {', '.join(self.models)}."
            return 404, dialect.error(404, text, "NotFoundError", "model")
        if (body.get("top_logprobs") or 0) > self.most_logprobs:
            text = f"Requested sample logprobs of {body['top_logprobs']}, which is greater than max allowed: {self.most_logprobs} (parameter=logprobs, value={body['top_logprobs']})"
            return 400, dialect.error(400, text, "BadRequestError", "logprobs")
        needed = prompt_tokens(body)
        return (400, dialect.overflow(needed, CONTEXT)) if needed >= CONTEXT else None

    def aborted(self, message: str) -> bytes:
        """The event of an answer that fails in the middle."""
        return event({"error": self.dialect.failed(500, message, "InternalServerError", None)})


def _prompts(body: Json) -> list[Any]:
    return body["prompt"] if isinstance(body["prompt"], list) else [body["prompt"]]


async def _act(act: Act) -> bool:
    if act is Act.STALL:
        await asyncio.Event().wait()
    return False


async def _received(reader: asyncio.StreamReader) -> Seen:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    start, *lines = head.strip().split("\r\n")
    method, path, _ = start.split(" ")
    pairs = (line.partition(":") for line in lines)
    headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
    body = await reader.readexactly(int(headers.get("content-length", 0)))
    return Seen(method, path, headers, json.loads(body) if body else None)


@contextmanager
def engine(name: str, key: str | None = None) -> Iterator[Stub]:
    """The stub in the dialect of that engine."""
    with Stub(DIALECTS[name], key) as stub:
        yield stub


def left_early(stub: Stub) -> None:
    """Wait until the engine has seen its last client go."""
    wait_for(stub.asked[-1].left.is_set)
