"""An engine that is already there, asked as it is and through this server."""

import json
import os
import socket
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import anthropic
import httpx
import openai

from app.chat.assistant import Assistant
from app.settings import load_settings
from tests.app.remote.stub import MODEL, THINKER, Stub, engine
from tests.app.server.serving import Running, serving
from tests.bundled import POCKET
from tests.ui.application import application
from tests.waiting import wait_for

KEY = "sk-far-4f9d1c7e2b"  # of the engine; it must never be seen again
NAME = "office"
LOCAL = "pocket"
LLAMA_SERVER, VLLM = "SLIPSTREAM_LLAMA_SERVER", "SLIPSTREAM_VLLM"  # variables: paths of programs

QUIET = {  # an engine asks nobody, and takes little
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",  # GiB
}

Messages = list[dict[str, Any]]


def user(text: str) -> Messages:
    return [{"role": "user", "content": text}]


@dataclass(frozen=True)
class Far:
    """The engine, the server that passes requests on to it, and clients for both."""

    kind: str
    address: str
    model: str  # as the engine lists it
    server: Running
    home: Path
    stub: Stub | None = None
    thinker: str = ""  # a model that reasons

    @property
    def name(self) -> str:
        """The model, as this server lists it."""
        return f"{NAME}/{self.model}"

    @property
    def url(self) -> str:
        return f"{self.server.url}/v1"

    def there(self) -> openai.OpenAI:
        """A client of the engine itself."""
        return openai.OpenAI(base_url=self.address, api_key=KEY, max_retries=0, timeout=60)

    def here(self) -> openai.OpenAI:
        return openai.OpenAI(base_url=self.url, api_key="none", max_retries=0, timeout=60)

    def claude(self) -> anthropic.Anthropic:
        return anthropic.Anthropic(
            base_url=self.server.url, api_key="none", max_retries=0, timeout=60
        )

    def both(self) -> Iterator[tuple[openai.OpenAI, str]]:
        """Each client with the model's name there."""
        for client, model in ((self.there(), self.model), (self.here(), self.name)):
            with client:
                yield client, model


@contextmanager
def ours(home: Path, **engines: Mapping[str, object]) -> Iterator[Running]:
    """This server with a local model and these engines, configured as a person does it."""
    home.mkdir(exist_ok=True)
    (home / "far-key").touch(mode=0o600)
    (home / "far-key").write_text(f"{KEY}\n")
    lines = []
    for name, fields in engines.items():
        lines.append(f"[engines.{name}]")
        table = {"backend": "openai", "key": f"file:{home / 'far-key'}", **fields}
        lines += [f"{field} = {json.dumps(value)}" for field, value in table.items()]
    config = home / "config.toml"
    config.write_text("\n".join(lines))
    settings = load_settings({"SLIPSTREAM_HOME": str(home), "SLIPSTREAM_CONFIG": str(config)})
    with serving(lambda: Assistant.open(settings, LOCAL)) as running:
        yield running


# --- engines that are real processes ------------------------------------------------------------------


def program(variable: str) -> str | None:
    """The program that a person has named."""
    return os.environ.get(variable) or None


@contextmanager
def process(
    command: Iterable[str], port: int, log: Path, *, children: bool = False
) -> Iterator[str]:
    """The address of an engine in a process of its own, as soon as it answers.

    It ends in the middle of its answers, unless it has children to take with it.
    """
    with (
        log.open("w") as out,
        subprocess.Popen([*command], stdout=out, stderr=out, env=os.environ | QUIET) as started,
    ):
        address = f"http://127.0.0.1:{port}"

        def answers() -> bool:
            assert started.poll() is None, log.read_text()[-2000:]
            try:
                return httpx.get(f"{address}/health", timeout=5).status_code == 200
            except httpx.HTTPError:
                return False

        try:
            wait_for(answers, seconds=180)
            yield f"{address}/v1"
        finally:
            (started.terminate if children else started.kill)()
            started.wait(60)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        return int(found.getsockname()[1])


@contextmanager
def llama_server(folder: Path, gguf: Path, port: int) -> Iterator[str]:
    command = [program(LLAMA_SERVER) or "", "-m", str(gguf), "--port", str(port), "-c", "8192"]
    command += ["--alias", LOCAL, "--api-key", KEY, "--jinja", "-t", "2", "-np", "2", "--metrics"]
    with process(command, port, folder / "llama-server.log") as address:
        yield address


@contextmanager
def vllm(folder: Path, port: int) -> Iterator[str]:
    drafts = {"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_max": 3}
    command = [program(VLLM) or "", "serve", str(POCKET), "--served-model-name", LOCAL]
    command += ["--host", "127.0.0.1", "--port", str(port), "--api-key", KEY, "--enforce-eager"]
    command += ["--dtype", "float32", "--max-num-seqs", "4", "--enable-auto-tool-choice"]
    command += ["--tool-call-parser", "hermes", "--speculative-config", json.dumps(drafts)]
    with process(command, port, folder / "vllm.log", children=True) as address:
        yield address


@contextmanager
def slipstream(folder: Path, port: int) -> Iterator[str]:
    home = folder / "other"
    home.mkdir(exist_ok=True)
    with application(home, "--port", str(port)) as running:
        yield f"{running.address}/v1"


def started(kind: str, folder: Path, gguf: Path | None, port: int) -> AbstractContextManager[str]:
    """The address of an engine that is no stub; each has the same model."""
    match kind:
        case "slipstream":
            return slipstream(folder, port)
        case "llama-server":
            assert gguf is not None
            return llama_server(folder, gguf, port)
        case _:
            return vllm(folder, port)


class Stoppable:
    """An engine that can be ended and started again at its address."""

    def __init__(self, start: Callable[[], AbstractContextManager[str]]) -> None:
        self._start = start

    def __enter__(self) -> Self:
        self.start()
        return self

    def start(self) -> None:
        self._running = ExitStack()
        self.address = self._running.enter_context(self._start())

    def stop(self) -> None:
        self._running.close()

    def __exit__(self, *_: object) -> None:
        self.stop()


# --- what an answer says --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Choice:
    """All that a client gets of one choice, whether it streamed or not; ids are not part of it."""

    content: str
    reasoning: str
    calls: tuple[tuple[str, Any], ...]
    finish: str
    logprobs: tuple[tuple[str, float, tuple[tuple[str, float], ...]], ...]


Answer = tuple[tuple[Choice, ...], tuple[int, int] | None]
"""The choices and the counts of prompt and answer."""


def reasoning_of(message: Any) -> str:
    extra = message.model_extra or {}
    return extra.get("reasoning_content") or extra.get("reasoning") or ""


def likely(found: Any) -> tuple[Any, ...]:
    """Log probabilities, rounded as text."""
    return tuple(
        (one.token, round(one.logprob, 3),
         tuple((other.token, round(other.logprob, 3)) for other in one.top_logprobs))
        for one in ((found and found.content) or ())
    )  # fmt: skip


def counts(usage: Any) -> tuple[int, int] | None:
    return usage and (usage.prompt_tokens, usage.completion_tokens)


def whole(client: openai.OpenAI, model: str, messages: Messages, **fields: Any) -> Answer:
    """An answer at once."""
    found = client.chat.completions.create(model=model, messages=messages, **fields)
    choices = tuple(
        Choice(
            one.message.content or "",
            reasoning_of(one.message),
            tuple(
                (call.function.name, json.loads(call.function.arguments))
                for call in one.message.tool_calls or ()
            ),
            one.finish_reason,
            likely(one.logprobs),
        )
        for one in found.choices
    )
    return choices, counts(found.usage)


def streamed(client: openai.OpenAI, model: str, messages: Messages, **fields: Any) -> Answer:
    """The same out of a stream; checks the shape of its chunks."""
    options = {"stream": True, "stream_options": {"include_usage": True}}
    chunks = [*client.chat.completions.create(model=model, messages=messages, **options, **fields)]
    assert {chunk.object for chunk in chunks} == {"chat.completion.chunk"}
    assert len({chunk.id for chunk in chunks}) == 1
    usages = [chunk.usage for chunk in chunks if chunk.usage]
    assert len(usages) == 1
    assert chunks[-1].choices == []  # the counts come last, and alone
    parts = [choice for chunk in chunks for choice in chunk.choices]
    numbers = sorted({part.index for part in parts})
    choices = tuple(_joined([part for part in parts if part.index == at]) for at in numbers)
    return choices, counts(usages[0])


def _joined(parts: list[Any]) -> Choice:
    deltas = [part.delta for part in parts]
    assert [delta.role for delta in deltas if delta.role] == ["assistant"]
    ends = [part.finish_reason for part in parts if part.finish_reason]
    assert len(ends) == 1
    calls: dict[int, list[Any]] = {}
    for call in (call for delta in deltas for call in delta.tool_calls or ()):
        calls.setdefault(call.index, []).append(call)
    assert [*calls] == [*range(len(calls))]
    for found in calls.values():
        assert found[0].id
        assert [part.id for part in found[1:] if part.id and part.id != found[0].id] == []
    return Choice(
        "".join(delta.content or "" for delta in deltas),
        "".join(map(reasoning_of, deltas)),
        tuple(
            (found[0].function.name, json.loads("".join(one.function.arguments or "" for one in found)))
            for found in calls.values()
        ),
        ends[0],
        tuple(one for part in parts for one in likely(part.logprobs)),
    )  # fmt: skip


FORMS = (whole, streamed)


# --- the five engines -----------------------------------------------------------------------------------


@contextmanager
def opened(kind: str, folder: Path, gguf: Path | None) -> Iterator[Far]:
    """The engine of this kind, running, and this server in front of it."""
    home = folder / "home"
    with ExitStack() as stack:
        if kind in ("stub-vllm", "stub-sglang"):
            stub = stack.enter_context(engine(kind.removeprefix("stub-"), KEY))
            server = stack.enter_context(ours(home, **{NAME: {"address": stub.address}}))
            yield Far(kind, stub.address, MODEL, server, home, stub, THINKER)
            return
        address = stack.enter_context(started(kind, folder, gguf, free_port()))
        server = stack.enter_context(ours(home, **{NAME: {"address": address}}))
        yield Far(kind, address, LOCAL, server, home)
