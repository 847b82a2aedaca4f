"""Streams of events in every state, and answers that a stop text ended."""

import asyncio
import json
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typing_extensions import override

from app.chat.reply import Arrived
from app.request import ChatRequest, Completion, Delta
from app.server.errors import ApiError
from app.server.respond import PING, Protocol, event, respond
from engine.request import FinishReason
from tests.app.asynchronous import asynchronous
from tests.app.history.replies import stats
from tests.app.server.fake_assistant import Prepared
from tests.app.server.serving import answer

JSON = st.recursive(st.none() | st.booleans() | st.integers() | st.text(), st.lists, max_leaves=5)
DELTA = (0, Delta("", "a", (), "a", (1,)))
END = (0, Completion("a", (1,), FinishReason.STOP, stats()))


@given(st.dictionaries(st.text(), JSON))
def test_law_event_is_one_line_of_data(body: dict[str, Any]) -> None:
    sent = event(body)
    assert sent.startswith(b"data: ")
    assert sent.endswith(b"\n\n")
    assert b"\n" not in sent[:-2]
    assert b"\r" not in sent
    assert json.loads(sent[6:]) == body


class Named(Protocol):
    """Events with nothing but their type."""

    names_events = True

    @override
    def first(self) -> Iterator[dict[str, Any]]:
        yield {"type": "created"}

    @override
    def delta(self, index: int, delta: Delta) -> Iterator[dict[str, Any]]:
        yield {"type": "delta"}

    @override
    def last(self, index: int, completion: Completion) -> Iterator[dict[str, Any]]:
        yield {"type": "last"}

    @override
    def whole(self, completions: list[Completion]) -> dict[str, Any]:
        return {"answers": len(completions)}


class Broken(Named):
    """Cannot even start."""

    @override
    def first(self) -> Iterator[dict[str, Any]]:
        yield {"type": "created"}
        raise ValueError


class Answers:
    """An assistant with a script: deltas and completions, or None for silence."""

    def __init__(self, *script: Arrived | asyncio.Event | None) -> None:
        self.script, self.closed = script, False
        self.freed: tuple[str, ...] = ()

    async def prepare(self, request: ChatRequest) -> Prepared:
        return Prepared(request, 1, freed=self.freed)

    async def answers(
        self, requests: list[Prepared], count: int, quiet_seconds: float
    ) -> AsyncGenerator[Arrived | None]:
        try:
            for item in self.script:
                if isinstance(item, asyncio.Event):
                    await item.wait()
                else:
                    yield item
        finally:
            self.closed = True


async def answered(answers: Answers, protocol: Protocol, *, stream: bool = True) -> Any:
    body: Any = SimpleNamespace(
        stream=stream, chat_requests=(ChatRequest(()),), choices=1, skipped=()
    )
    scope = {"path": "/v1/responses", "headers": []}
    staying: Any = SimpleNamespace(receive=lambda: asyncio.Event().wait(), scope=scope)
    assistant: Any = answers
    return await respond(assistant, body, protocol, staying)


@asynchronous
async def test_comments_fill_a_pause() -> None:
    response = await answered(Answers(DELTA, None, None, END), Named())
    parts = [part.split(b"\n")[0] async for part in response.events]
    ping = PING.strip()
    assert parts == [b"event: created", b"event: delta", ping, ping, b"event: last"]


@pytest.mark.parametrize("stream", [False, True])
@asynchronous
async def test_what_no_grammar_holds_is_named(stream: bool) -> None:
    answers = Answers(DELTA, END)
    answers.freed = ("cron: 'maxLength' at #/properties/\N{SNOWMAN}\n", "x: 'not' at #")
    response = await answered(answers, Named(), stream=stream)
    said = "cron: 'maxLength' at #/properties/??, x: 'not' at #"
    assert response.headers["x-slipstream-freed"] == said
    if not stream:
        assert json.loads(response.body) == {"answers": 1, "freed": [*answers.freed]}


@asynchronous
async def test_closing_in_a_pause_closes_the_answer_at_once() -> None:
    answers = Answers(DELTA, asyncio.Event())
    response = await answered(answers, Named())
    async with aclosing(response.events) as events:
        await anext(events)
    assert answers.closed


@asynchronous
async def test_a_stream_that_fails_at_its_start_has_an_error_and_ends_its_answer() -> None:
    """It was torn without an event, and its answer ran on."""
    answers = Answers(DELTA, END)
    response = await answered(answers, Broken())
    parts = [part async for part in response.events]
    assert b"event: created" in parts[0]
    assert b"log of the server" in parts[-1]
    assert len(parts) == 2
    assert answers.closed


@asynchronous
async def test_a_stream_that_fails_before_its_first_word_is_a_plain_error() -> None:
    """Clients read the status before they read events."""
    failed = Completion("", (), FinishReason.ERROR, stats(), error="no room", code="out_of_memory")
    answers = Answers((0, failed))
    with pytest.raises(ApiError) as caught:
        await answered(answers, Named())
    assert (caught.value.failure.status, caught.value.failure.code) == (500, "out_of_memory")
    assert answers.closed


COUNTED = {"role": "user", "content": "Repeat this text exactly:\nred hat, blue hat, red hat, blue hat, red hat"}  # fmt: skip
PREDICTED = {"type": "content", "content": "red hat, blue hat, red hat, blue hat, red hat"}
DRAFTERS = ("none", "lookup", "suffix", "recycling", "chain", "sequoia", "auto")
TOOL = {
    "name": "note",
    "input_schema": {"type": "object", "properties": {"text": {"enum": ["all is END well"]}}, "required": ["text"]},
}  # fmt: skip


@pytest.mark.parametrize("stop", ["blue", " hat, r", "t", ["zzz", "e hat"]])
def test_counts_and_log_probabilities_end_with_the_answer(url: str, stop: object) -> None:
    def asked(drafter: str) -> tuple[Any, ...]:
        body = {"messages": [COUNTED], "stop": stop, "logprobs": True, "drafter": drafter, "max_tokens": 60}  # fmt: skip
        found = answer(url, **body, prediction=PREDICTED)
        choice, usage = found["choices"][0], found["usage"]
        tokens = [entry["token"] for entry in choice["logprobs"]["content"]]
        assert usage["completion_tokens"] == len(tokens) == found["timings"]["predicted_n"]
        assert "".join(tokens).startswith(choice["message"]["content"])
        details = usage["completion_tokens_details"]
        assert details["accepted_prediction_tokens"] <= len(tokens)
        return choice["message"]["content"], tokens, choice["finish_reason"], details

    plain = asked("none")
    assert plain[2] == "stop"
    for drafter in DRAFTERS[1:]:
        assert asked(drafter) == plain, drafter


def test_anthropics_protocol_names_the_stop_text(url: str) -> None:
    body = {"messages": [COUNTED], "max_tokens": 60}
    ended = answer(url, "messages", **body, stop_sequences=["zzz", "blue"])
    assert (ended["stop_reason"], ended["stop_sequence"]) == ("stop_sequence", "blue")
    whole = answer(url, "messages", **body)
    assert (whole["stop_reason"], whole["stop_sequence"]) == ("end_turn", None)


def test_a_call_cut_by_a_stop_text_is_incomplete(url: str) -> None:
    asks = {"messages": [COUNTED], "max_tokens": 90, "tools": [TOOL]}
    cut = answer(url, "messages", **asks, tool_choice={"type": "any"}, stop_sequences=["END"])
    assert (cut["stop_reason"], cut["stop_sequence"]) == ("stop_sequence", "END")
    function = {"type": "function", "name": "note", "parameters": TOOL["input_schema"]}
    body = {
        "input": "Note it.",
        "tools": [function],
        "tool_choice": "required",
        "parallel_tool_calls": False,
    }
    cut = answer(url, "responses", **body, stop=["END"])
    assert cut["status"] == "incomplete"
    assert cut["incomplete_details"] is None
    assert [item["status"] for item in cut["output"]] == ["incomplete"]
    whole = answer(url, "responses", **body)
    assert whole["status"] == "completed"
    assert {item["status"] for item in whole["output"]} == {"completed"}
