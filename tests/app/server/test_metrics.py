"""What a monitor reads: Prometheus' text, and in it what the answers told of themselves."""

import re
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.app.server.serving import served

LINE = re.compile(r'(?P<name>[a-z_]+:[a-z_]+(\{[a-z_]+="[^"{}]*"\})?) (?P<value>[0-9.e+-]+)')
END = "4"  # the token that ends an answer of pocket's
ASKED = {"model": "pocket", "messages": [{"role": "user", "content": "What is 17 + 25?"}]}


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with served(tmp_path_factory.mktemp("home"), "pocket") as url:
        yield url


def metrics(url: str, path: str = "/metrics") -> dict[str, float]:
    """By name and labels; every name is told what it is before its values."""
    answer = httpx.get(f"{url}{path}", timeout=60)
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert answer.text.endswith("\n")
    found, told, kind = {}, "", ""
    for line in answer.text.splitlines():
        if line.startswith("# HELP "):
            told = line.split()[2]
        elif line.startswith("# TYPE "):
            assert line.split()[2] == told
            kind = line.split()[3]
            assert kind == ("counter" if told.endswith("_total") else "gauge")
        else:
            value = LINE.fullmatch(line)
            assert value is not None, line
            assert value["name"].partition("{")[0] == told
            found[value["name"]] = float(value["value"])
    return found


def ask(url: str, **fields: Any) -> dict[str, Any]:
    answer = httpx.post(f"{url}/v1/chat/completions", json={**ASKED, **fields}, timeout=60)
    return dict(answer.json())


def test_answers_are_added_up(url: str) -> None:
    before = metrics(url)
    answers = [
        ask(url, max_tokens=5, drafter="none"),
        ask(url, max_tokens=200, drafter="chain"),
        ask(url, max_tokens=5, drafter="none", n=2),
    ]
    after = metrics(url)

    def grown(name: str) -> float:
        return after[name] - before.get(name, 0.0)

    timings = [answer["timings"] for answer in answers]
    emitted = sum(timing["predicted_n"] for timing in timings)
    assert grown("llamacpp:tokens_predicted_total") == emitted
    passes = sum(answer["speculation"]["passes"] for answer in answers)
    assert grown("llamacpp:n_decode_total") == passes
    drafted = sum(timing.get("draft_n", 0) for timing in timings)
    assert grown("llamacpp:spec_decode_num_draft_tokens_total") == drafted > 0
    accepted = sum(timing.get("draft_n_accepted", 0) for timing in timings)
    assert grown("llamacpp:spec_decode_num_accepted_tokens_total") == accepted > 0
    by_place = [
        n for n in after if n.startswith("llamacpp:spec_decode_num_accepted_tokens_per_pos")
    ]
    assert sum(grown(name) for name in by_place) == accepted
    assert grown('slipstream:answers_total{finish_reason="length"}') == 3
    assert grown('slipstream:answers_total{finish_reason="stop"}') == 1
    for name in ("none", "chain"):
        assert grown(f'slipstream:decode_seconds_total{{drafter="{name}"}}') > 0
    plain = grown('slipstream:tokens_total{drafter="none"}')
    assert plain == grown('slipstream:passes_total{drafter="none"}') == 15
    saved = grown('slipstream:plain_seconds_total{drafter="chain"}')
    assert saved > 0
    assert after["llamacpp:requests_processing"] == 0
    assert metrics(url, "/v1/metrics") == after


def test_an_answer_that_is_being_written_is_seen(url: str) -> None:
    endless = {**ASKED, "stream": True, "max_tokens": 250, "logit_bias": {END: -100}}
    asked = f"{url}/v1/chat/completions"
    with httpx.stream("POST", asked, json={**endless, "drafter": "none"}, timeout=60) as answer:
        lines = answer.iter_lines()
        next(lines)
        assert metrics(url)["llamacpp:requests_processing"] == 1
        assert "[DONE]" in [*lines][-2]
    assert metrics(url)["llamacpp:requests_processing"] == 0
