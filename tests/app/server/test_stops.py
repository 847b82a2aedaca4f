"""Stop texts: what is told of an answer that one of them ended is the same whoever drafts."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.app.server.serving import served

COUNTED = {"role": "user", "content": "Repeat this text exactly:\nred hat, blue hat, red hat, blue hat, red hat"}  # fmt: skip
DRAFTERS = ("none", "lookup", "suffix", "recycling", "chain", "sequoia", "auto")
TOOL = {
    "name": "note",
    "input_schema": {"type": "object", "properties": {"text": {"enum": ["all is END well"]}}, "required": ["text"]},
}  # fmt: skip


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with served(tmp_path_factory.mktemp("home")) as url:
        yield url


def told(url: str, path: str, body: dict[str, Any]) -> dict[str, Any]:
    answer = httpx.post(f"{url}{path}", json={"model": "pocket", **body}, timeout=60)
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


@pytest.mark.parametrize("stop", ["blue", " hat, r", "t", ["zzz", "e hat"]])
def test_counts_and_log_probabilities_end_with_the_answer(url: str, stop: object) -> None:
    def asked(drafter: str) -> tuple[Any, ...]:
        body = {"messages": [COUNTED], "stop": stop, "logprobs": True, "drafter": drafter, "max_tokens": 60}  # fmt: skip
        found = told(url, "/v1/chat/completions", {**body, "prediction": PREDICTED})
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


PREDICTED = {"type": "content", "content": "red hat, blue hat, red hat, blue hat, red hat"}


def test_the_text_that_ended_it_is_told_where_the_protocol_has_a_place_for_it(url: str) -> None:
    body = {"messages": [COUNTED], "max_tokens": 60}
    ended = told(url, "/v1/messages", {**body, "stop_sequences": ["zzz", "blue"]})
    assert (ended["stop_reason"], ended["stop_sequence"]) == ("stop_sequence", "blue")
    whole = told(url, "/v1/messages", body)
    assert (whole["stop_reason"], whole["stop_sequence"]) == ("end_turn", None)


def test_a_call_that_a_stop_text_cuts_is_no_call_to_make(url: str) -> None:
    asks = {"messages": [COUNTED], "max_tokens": 90, "tools": [TOOL]}
    cut = told(
        url, "/v1/messages", {**asks, "tool_choice": {"type": "any"}, "stop_sequences": ["END"]}
    )
    assert (cut["stop_reason"], cut["stop_sequence"]) == ("stop_sequence", "END")
    function = {"type": "function", "name": "note", "parameters": TOOL["input_schema"]}
    body = {"input": "Note it.", "tools": [function], "tool_choice": "required"}
    cut = told(url, "/v1/responses", {**body, "stop": ["END"]})
    assert cut["status"] == "incomplete"
    assert cut["incomplete_details"] is None
    assert [item["status"] for item in cut["output"]] == ["incomplete"]
    whole = told(url, "/v1/responses", body)
    assert whole["status"] == "completed"
    assert {item["status"] for item in whole["output"]} == {"completed"}
