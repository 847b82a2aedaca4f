"""llama-server of llama.cpp: one process for every mode, asked over HTTP."""

import asyncio
import json
import re
import socket
import subprocess
from collections.abc import AsyncGenerator, Sequence
from contextlib import suppress
from pathlib import Path

import httpx
from typing_extensions import override

from app.bench.peers.program import Chunk, Program, Question
from app.errors import RequestFailed
from engine.platform.cores import usable_threads

PLAIN = "plain"
FAST_KEYS = ("-fa", "on", "-ctk", "bf16", "-ctv", "bf16")
START_SECONDS = ANSWER_SECONDS = 600.0
END_SECONDS = 5.0
LOOK_SECONDS = 0.2
HELP_SECONDS = 60.0


def modes(program: Path) -> dict[str, tuple[str, ...]]:
    """What this build can do without a draft model: names and arguments. Raises RequestFailed.

    Every mode at its defaults, and with the keys and values that were fastest on our processors.
    """
    try:
        told = subprocess.run(
            [program, "--help"], capture_output=True, text=True, timeout=HELP_SECONDS, check=True
        ).stdout
    except (OSError, subprocess.SubprocessError) as error:
        raise RequestFailed(f"{program} cannot be started: {error}") from error
    found = dict.fromkeys(re.findall(r"\bngram-[a-z0-9-]+\b", _about(told, "--spec-type")))
    drafting = {name: ("--spec-type", name) for name in found}
    plain: dict[str, tuple[str, ...]] = {PLAIN: ()}
    return {
        name + told: (*arguments, *more)
        for told, more in (("", ()), (", bf16 keys, flash", FAST_KEYS))
        for name, arguments in (plain | drafting).items()
    }


def _about(told: str, option: str) -> str:
    """The option's paragraph in the help."""
    _, _, behind = told.partition(option)
    return re.split(r"\n-", behind, maxsplit=1)[0]


class LlamaServer(Program):
    """One process, started with the arguments of one mode."""

    def __init__(
        self, program: Path, file: Path, arguments: Sequence[str], context: int, log: Path
    ) -> None:
        """``log`` gets what it prints."""
        self._port = _free_port()
        self._command = [
            str(program), "-m", str(file), "-t", str(usable_threads()), "-np", "1", "-c", str(context),
            "--host", "127.0.0.1", "--port", str(self._port), *arguments,
        ]  # fmt: skip
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None
        self._client = httpx.AsyncClient(
            base_url=f"http://127.0.0.1:{self._port}",
            timeout=ANSWER_SECONDS,
            trust_env=False,
            # a server that was paused closes connections that it finds to be old
            limits=httpx.Limits(max_keepalive_connections=0),
        )

    @property
    @override
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    @override
    async def start(self) -> None:
        with self._log.open("wb") as out:
            self._process = subprocess.Popen(
                self._command,
                stdout=out,
                stderr=out,
                stdin=subprocess.DEVNULL,
            )
        try:
            await asyncio.wait_for(self._ready(self._process), START_SECONDS)
        except TimeoutError as error:
            raise RequestFailed(
                f"llama-server was not ready after {START_SECONDS:.0f} s; see {self._log}"
            ) from error

    async def _ready(self, process: subprocess.Popen[bytes]) -> None:
        while True:
            if process.poll() is not None:
                raise RequestFailed(
                    f"llama-server ended with status {process.returncode}; see {self._log}"
                )
            with suppress(httpx.TransportError):
                if (await self._client.get("/health")).status_code == httpx.codes.OK:
                    return
            await asyncio.sleep(LOOK_SECONDS)

    @override
    async def answer(self, mode: str, question: Question) -> AsyncGenerator[Chunk, None]:
        asked = {
            "prompt": list(question.ids), "n_predict": question.max_tokens, "temperature": 0,
            "cache_prompt": False, "return_tokens": True, "stream": True,
        }  # fmt: skip
        try:
            async with self._client.stream("POST", "/completion", json=asked) as response:
                if response.status_code != httpx.codes.OK:
                    told = (await response.aread()).decode(errors="replace")
                    raise RequestFailed(f"llama-server, {mode}: {told}")
                async for line in response.aiter_lines():
                    if line.startswith("data: "):
                        yield _chunk(json.loads(line[6:]), question.stop_tokens)
        except httpx.TransportError as error:
            raise RequestFailed(f"llama-server, {mode}: {error}; see {self._log}") from error

    @override
    async def close(self) -> None:
        await self._client.aclose()
        if self._process is None:
            return
        self._process.terminate()
        try:
            await asyncio.to_thread(self._process.wait, END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            await asyncio.to_thread(self._process.wait)


def _chunk(event: dict[str, object], stop_tokens: frozenset[int]) -> Chunk:
    """Of one event; the last one has counts of the whole answer."""
    tokens = event.get("tokens")
    ids = tuple(tokens) if isinstance(tokens, list) else ()
    if not event.get("stop"):
        return Chunk(tuple(token for token in ids if token not in stop_tokens))
    timings = event.get("timings")
    counts = timings if isinstance(timings, dict) else {}
    return Chunk(
        (),
        drafted=counts.get("draft_n", 0),
        accepted=counts.get("draft_n_accepted", 0),
        stopped=event.get("stop_type") in ("eos", "word"),
    )


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port
