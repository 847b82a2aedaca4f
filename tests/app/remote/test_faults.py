"""Engines that end in the wrong place: one clear error, and nothing else suffers."""

import json
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import openai
import pytest

from tests.app.remote import faults
from tests.app.remote.far import LOCAL, NAME, Far, ours, streamed, whole
from tests.app.remote.faults import Fault, chunk
from tests.app.remote.faulty import (
    GREEDY,
    HI,
    MIDDLE,
    MOST_MEMORY,
    PATIENCE,
    Form,
    Memory,
    answered,
    both_forms,
    check,
    direct,
    spoilt,
)
from tests.app.remote.stub import Stub
from tests.waiting import wait_for

# --- in the middle of an answer -------------------------------------------------------------------------


@both_forms
@pytest.mark.parametrize("what", MIDDLE)
def test_an_answer_that_breaks_off_is_an_error_and_is_not_asked_again(
    faulty: Far, stub: Stub, form: Form, what: str
) -> None:
    started = time.monotonic()
    with stub.spoiling(MIDDLE[what]), Memory() as memory:
        spoilt(faulty, form)
    assert len(stub.asked) == 1
    assert time.monotonic() - started < PATIENCE + 5
    assert memory.grown < MOST_MEMORY  # also of an event without bounds


def test_what_came_before_is_delivered(faulty: Far, stub: Stub) -> None:
    body = {"model": faulty.name, "messages": HI, **GREEDY, "stream": True}
    with stub.spoiling(faults.breaks_off(6)):
        broken = httpx.post(f"{faulty.url}/chat/completions", json=body, timeout=20)
    events = [line for line in broken.text.splitlines() if line.startswith("data: ")]
    *parts, last = [json.loads(line.removeprefix("data: ")) for line in events]
    assert "error" in last  # and no [DONE] after it
    deltas = [choice["delta"] for part in parts for choice in part["choices"]]
    text = "".join(delta.get("content") or "" for delta in deltas)
    assert text
    assert direct(faulty)[0][0].content.startswith(text)


@both_forms
@pytest.mark.parametrize("what", faults.HARMLESS)
def test_events_that_say_nothing_change_nothing(
    faulty: Far, stub: Stub, form: Form, what: str
) -> None:
    with stub.spoiling(faults.sends(faults.HARMLESS[what])):
        found = answered(faulty, form)
    assert found == direct(faulty)


@both_forms
@pytest.mark.parametrize("what", [*faults.BROKEN])
def test_events_in_another_form_are_an_error_or_are_left_out(
    faulty: Far, stub: Stub, form: Form, what: str
) -> None:
    theirs = direct(faulty)
    with stub.spoiling(faults.sends(faults.BROKEN[what])):
        assert answered(faulty, form) in (theirs, None)
    assert len(stub.asked) == 2


# --- before an answer -----------------------------------------------------------------------------------


@both_forms
@pytest.mark.parametrize(
    "fault",
    [faults.hangs_up, faults.is_replaced(faults.BAD_GATEWAY)],
    ids=["hangs up", "bad gateway"],
)
def test_it_is_asked_once_more_where_nothing_was_answered(
    faulty: Far, stub: Stub, form: Form, fault: Fault
) -> None:
    with stub.spoiling(fault, times=1), faulty.here() as here:
        assert form(here, faulty.name, HI, **GREEDY)[0][0].content
    assert len(stub.asked) == 2
    assert stub.asked[0].body == stub.asked[1].body


@both_forms
@pytest.mark.parametrize(
    "fault",
    [faults.hangs_up, faults.is_replaced(faults.BAD_GATEWAY)],
    ids=["hangs up", "bad gateway"],
)
def test_it_is_not_asked_a_third_time(faulty: Far, stub: Stub, form: Form, fault: Fault) -> None:
    with stub.spoiling(fault):
        error = spoilt(faulty, form)
    assert error.status_code in (502, 503)
    assert len(stub.asked) == 2


@both_forms
def test_silence_ends(faulty: Far, stub: Stub, form: Form) -> None:
    for fault in (faults.says_nothing, faults.stalls(0)):
        stub.forget()
        started = time.monotonic()
        with stub.spoiling(fault):
            error = spoilt(faulty, form)
        assert PATIENCE - 0.5 < time.monotonic() - started < PATIENCE + 3
        assert error.status_code in (502, 503, 504)
        assert len(stub.asked) == 1
        assert "2 seconds" in error.message


@both_forms
def test_an_engine_that_is_gone_is_one_sentence_with_an_offer(
    faulty: Far, stub: Stub, form: Form
) -> None:
    stub.stop()
    try:
        error = spoilt(faulty, form)
        with faulty.here() as here:
            assert LOCAL in [model.id for model in here.models.list()]
    finally:
        stub.start()
    assert error.status_code in (502, 503)
    for part in (f"127.0.0.1:{stub.port}", LOCAL):
        assert part in error.message


def test_an_engine_that_restarts_in_the_middle(faulty: Far, stub: Stub) -> None:
    stub.words, stub.pace = 500, 0.02
    with faulty.here() as here:
        parts = iter(here.chat.completions.create(model=faulty.name, messages=HI, stream=True))
        while not next(parts).choices[0].delta.content:
            pass
        stub.stop()
        with pytest.raises(openai.APIError) as broken:
            list(parts)
        check(broken.value)
        assert len(stub.asked) == 1
        stub.words, stub.pace = None, 0.0
        stub.start()
        assert streamed(here, faulty.name, HI, **GREEDY)[0][0].content


def test_an_address_where_nobody_answers(tmp_path: Path) -> None:
    """Its queue is full, so that not even a connection comes."""
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        deaf.listen(0)
        address = deaf.getsockname()
        waiting = [socket.socket() for _ in range(4)]
        for one in waiting:
            one.setblocking(False)
            one.connect_ex(address)
        table = {"address": f"http://127.0.0.1:{address[1]}/v1", "timeout": 1, "models": ["m"]}
        with ours(tmp_path / "home", **{NAME: table}) as server:
            far = Far("nobody", "", "m", server, tmp_path)
            started = time.monotonic()
            spoilt(far, whole)
            assert time.monotonic() - started < 6
        for one in waiting:
            one.close()


# --- floods, and others meanwhile -----------------------------------------------------------------------


def test_a_flood_of_small_events_leaves_others_their_turn(faulty: Far, stub: Stub) -> None:
    flood = faults.sends(*[chunk({"content": "x"})] * 100_000)
    body = {"model": faulty.name, "messages": HI, **GREEDY, "stream": True}
    with stub.spoiling(flood), ThreadPoolExecutor(1) as pool, Memory() as memory:
        url = f"{faulty.url}/chat/completions"
        found = pool.submit(httpx.post, url, json=body, timeout=200)
        slowest = 0.0
        while not found.done():
            started = time.monotonic()
            assert httpx.get(f"{faulty.server.url}/health", timeout=30).status_code == 200
            slowest = max(slowest, time.monotonic() - started)
            time.sleep(0.05)
    assert found.result().status_code == 200
    assert slowest < 5
    assert memory.grown < MOST_MEMORY


@pytest.mark.parametrize("field", ["content", "reasoning", "reasoning_content"])
def test_an_answer_without_an_end_is_ended(faulty: Far, stub: Stub, field: str) -> None:
    endless = faults.sends(*[chunk({field: "x" * 2**16})] * 1000)
    with stub.spoiling(endless), Memory() as memory:
        spoilt(faulty, whole)
    wait_for(stub.asked[-1].left.is_set)
    assert memory.grown < MOST_MEMORY


def test_engines_that_stall_keep_nobody_waiting(faulty: Far, stub: Stub) -> None:
    with stub.spoiling(faults.stalls(3)), ThreadPoolExecutor(16) as pool, faulty.here() as here:
        stalled = [pool.submit(spoilt, faulty, whole) for _ in range(16)]
        wait_for(lambda: len(stub.asked) == 16)
        started = time.monotonic()
        assert whole(here, LOCAL, HI, max_tokens=4)[0][0].content
        assert time.monotonic() - started < PATIENCE + 3
        for one in stalled:
            one.result(30)
