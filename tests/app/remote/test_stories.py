"""What a client gets of another engine through this server is what it gets of the engine itself."""

import json
from collections.abc import Callable
from typing import Any

import openai
import pytest

from tests.app.remote.far import (
    FORMS,
    LOCAL,
    NAME,
    Answer,
    Far,
    Messages,
    streamed,
    user,
    whole,
)
from tests.app.remote.stub import Stub
from tests.app.server.serving import ADD_TOOL, TWO_NUMBERS

Form = Callable[..., Answer]
GREEDY = {"temperature": 0, "max_tokens": 48}
HI = user("What is 17 + 25?")
LONG = user("Write about the sea. " * 3)
PAIR = {
    "type": "json_schema",
    "json_schema": {"name": "pair", "schema": TWO_NUMBERS, "strict": True},
}

both_forms = pytest.mark.parametrize("form", FORMS)


def same(far: Far, form: Form, messages: Messages, **fields: Any) -> Answer:
    """Ask the engine, then this server; the answers must be equal. Returns one of them."""
    there, here = (form(client, model, messages, **fields) for client, model in far.both())
    assert here == there
    return here


# --- what an answer is --------------------------------------------------------------------------------


def test_its_models_are_listed_next_to_the_local_one(far: Far) -> None:
    with far.there() as there, far.here() as here:
        theirs = [model.id for model in there.models.list()]
        listed = {model.id: model for model in here.models.list()}
        assert [*listed] == [LOCAL, *(f"{NAME}/{each}" for each in theirs)]
        assert here.models.retrieve(far.name).id == far.name


@both_forms
def test_an_answer(far: Far, form: Form) -> None:
    choices, counts = same(far, form, HI, **GREEDY)
    assert choices[0].content
    assert counts


def test_a_stream_says_what_a_whole_answer_says(far: Far) -> None:
    with far.here() as here:
        assert whole(here, far.name, HI, **GREEDY) == streamed(here, far.name, HI, **GREEDY)


def test_counts_of_a_stream_come_only_where_they_were_asked_for(far: Far) -> None:
    with far.here() as here:
        chunks = [*here.chat.completions.create(model=far.name, messages=HI, stream=True, **GREEDY)]
    assert [chunk.usage for chunk in chunks if chunk.usage] == []
    assert all(chunk.choices for chunk in chunks)


@both_forms
@pytest.mark.parametrize("field", ["max_tokens", "max_completion_tokens"])
def test_a_limit_of_tokens(far: Far, form: Form, field: str) -> None:
    choices, counts = same(far, form, LONG, temperature=0, **{field: 3})
    assert choices[0].finish == "length"
    assert counts is not None
    assert counts[1] == 3


@both_forms
def test_no_limit_is_the_engines_own(far: Far, form: Form) -> None:
    choices, _ = same(far, form, HI, temperature=0)
    assert choices[0].finish == "stop"


@both_forms
def test_a_stop_text(far: Far, form: Form) -> None:
    free = same(far, form, HI, **GREEDY)[0][0].content
    stop = free[len(free) // 2 :][:2]
    choices, _ = same(far, form, HI, stop=[stop, "never said"], **GREEDY)
    assert choices[0].content == free[: free.index(stop)]
    assert choices[0].finish == "stop"


@both_forms
def test_a_seed(far: Far, form: Form) -> None:
    """The engine's answer for it, where the engine repeats itself: vLLM does not where it drafts."""
    fields = {"temperature": 1.3, "top_p": 0.9, "max_tokens": 24}
    with far.there() as there:
        theirs = {seed: form(there, far.model, LONG, seed=seed, **fields) for seed in (7, 8, 9)}
        repeats = far.kind != "vllm"
    with far.here() as here:
        ours = {seed: form(here, far.name, LONG, seed=seed, **fields) for seed in theirs}
    assert ours == theirs or not repeats
    if far.kind != "llama-server":  # whose own settings leave this model one way to answer
        assert len({choices[0].content for choices, _ in ours.values()}) > 1


@both_forms
def test_a_request_without_a_temperature_is_greedy_there_too(far: Far, form: Form) -> None:
    """As this endpoint promises for every model; what else the engine does is not changed."""
    with far.here() as here:
        plain = form(here, far.name, HI, max_tokens=8)
        assert form(here, far.name, HI, temperature=0, max_tokens=8) == plain
    if far.stub is not None:
        assert {"top_p", "top_k", "min_p", "seed", "n", "stop"} & {
            *far.stub.asked[-1].body
        } == set()


# --- what is asked ------------------------------------------------------------------------------------


@both_forms
def test_system_and_developer_messages(far: Far, form: Form) -> None:
    plain = same(far, form, HI, **GREEDY)
    for role in ("system", "developer"):
        if role == "developer" and far.stub is None:
            continue  # templates of real models may not know it
        answer = same(far, form, [{"role": role, "content": "Answer in verse."}, *HI], **GREEDY)
        assert answer[1] != plain[1]  # it was read


@both_forms
def test_a_conversation(far: Far, form: Form) -> None:
    turns = [*HI, {"role": "assistant", "content": "42"}, *user("And 3 more?")]
    same(far, form, turns, **GREEDY)


@both_forms
def test_a_message_in_parts(far: Far, form: Form) -> None:
    parts = [{"type": "text", "text": "What is "}, {"type": "text", "text": "17 + 25?"}]
    with far.here() as here:
        in_parts = form(here, far.name, [{"role": "user", "content": parts}], **GREEDY)
        assert in_parts == form(here, far.name, HI, **GREEDY)


def test_an_image_is_refused_before_anything_is_sent(far: Far) -> None:
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
    with far.here() as here, pytest.raises(openai.BadRequestError, match="image"):
        whole(here, far.name, [{"role": "user", "content": [image]}])
    assert far.stub is None or far.stub.asked == []


@both_forms
def test_several_choices(far: Far, form: Form) -> None:
    with far.here() as here:
        choices, counts = form(here, far.name, LONG, n=3, seed=5, temperature=1.2, max_tokens=12)
    assert len(choices) == 3
    assert len({choice.content for choice in choices}) > 1
    assert counts is not None
    assert counts[1] <= 36


@both_forms
def test_text_in_many_scripts(far: Far, form: Form) -> None:
    if far.stub is not None:
        far.stub.slices = 1  # every character of several bytes comes in several reads
    same(
        far, form, user("Schreibe: naïve 日本語 👩‍👧 e\u0301 \u2028 \u0000 <b>&amp;</b>"), **GREEDY
    )


@both_forms
def test_a_long_answer(far: Far, form: Form) -> None:
    if far.stub is not None:
        far.stub.words = 3000
    _, counts = same(far, form, LONG, temperature=0, max_tokens=600 if far.stub is None else 9000)
    assert counts is not None
    assert far.stub is None or counts[1] > 3000


@both_forms
def test_an_empty_answer(stubbed: Far, stub_of: Stub, form: Form) -> None:
    stub_of.words = 0
    choices, _ = same(stubbed, form, HI)
    assert (choices[0].content, choices[0].finish) == ("", "stop")


# --- tools, formats, reasoning, log probabilities -------------------------------------------------------


@both_forms
def test_a_call_that_is_required(far: Far, form: Form) -> None:
    fields = {"tools": [ADD_TOOL], "tool_choice": "required", "parallel_tool_calls": False}
    choices, _ = same(far, form, HI, temperature=0, max_tokens=200, **fields)
    if far.kind == "llama-server":
        return  # it calls nothing where a model's template has no place for tools
    [(name, arguments)] = choices[0].calls
    assert name == "add"
    assert {*arguments} == {"a", "b"} or far.kind == "vllm"  # which does not hold this model to it
    assert choices[0].finish == "tool_calls"


@both_forms
def test_a_call_by_name(far: Far, form: Form) -> None:
    named = {"type": "function", "function": {"name": "add"}}
    with far.here() as here:
        fields = {"tools": [ADD_TOOL], "tool_choice": named, "temperature": 0, "max_tokens": 200}
        choices, _ = form(here, far.name, HI, **fields)
    assert [name for name, _ in choices[0].calls] == ["add"] * (far.kind != "llama-server")


@both_forms
def test_calls_that_the_model_chooses(stubbed: Far, stub_of: Stub, form: Form) -> None:
    """Two at once, in fragments."""
    choices, _ = same(stubbed, form, HI, tools=[ADD_TOOL], temperature=0)
    assert [name for name, _ in choices[0].calls] == ["add", "add"]
    assert choices[0].finish == "tool_calls"


@both_forms
def test_no_call_is_wanted(far: Far, form: Form) -> None:
    choices, _ = same(far, form, HI, tools=[ADD_TOOL], tool_choice="none", **GREEDY)
    assert choices[0].calls == ()


@both_forms
def test_the_result_of_a_call(far: Far, form: Form) -> None:
    call = {"id": "call_1", "type": "function", "function": {"name": "add", "arguments": '{"a": 17, "b": 25}'}}  # fmt: skip
    story = [
        *HI,
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "content": "42"},
    ]
    with far.here() as here:
        choices, _ = form(here, far.name, story, tools=[ADD_TOOL], **GREEDY)
    assert choices[0].content or choices[0].calls
    if far.stub is not None:
        sent = far.stub.asked[-1].body["messages"]
        assert sent[1]["tool_calls"][0]["id"] == sent[2]["tool_call_id"]
        assert json.loads(sent[1]["tool_calls"][0]["function"]["arguments"]) == {"a": 17, "b": 25}


@both_forms
@pytest.mark.parametrize("wanted", [{"type": "json_object"}, PAIR], ids=["object", "schema"])
def test_an_answer_in_a_format(far: Far, form: Form, wanted: dict[str, Any]) -> None:
    choices, _ = same(far, form, HI, response_format=wanted, temperature=0, max_tokens=300)
    if choices[0].finish == "stop":
        found = json.loads(choices[0].content)
        assert isinstance(found, dict)
        assert wanted != PAIR or {*found} == {"a", "b"}


@both_forms
def test_reasoning_is_no_part_of_the_answer(stubbed: Far, stub_of: Stub, form: Form) -> None:
    with stubbed.there() as there, stubbed.here() as here:
        theirs = form(there, stubbed.thinker, HI, temperature=0)
        assert form(here, f"{NAME}/{stubbed.thinker}", HI, temperature=0) == theirs
    assert theirs[0][0].reasoning
    assert theirs[0][0].content


@both_forms
def test_no_reasoning_is_wanted(stubbed: Far, stub_of: Stub, form: Form) -> None:
    with stubbed.here() as here:
        name = f"{NAME}/{stubbed.thinker}"
        choices, _ = form(here, name, HI, temperature=0, reasoning_effort="none")
    assert choices[0].reasoning == ""


@both_forms
@pytest.mark.parametrize("top", [0, 3])
def test_log_probabilities(far: Far, form: Form, top: int) -> None:
    choices, _ = same(far, form, HI, logprobs=True, top_logprobs=top, temperature=0, max_tokens=6)
    if far.kind == "llama-server" and not top:
        return  # it tells none without others
    said = "".join(token for token, _, _ in choices[0].logprobs)
    assert said.strip() == choices[0].content.strip() != ""
    assert {len(others) for _, _, others in choices[0].logprobs} == {top}


# --- the other protocols --------------------------------------------------------------------------------


def test_a_text_is_continued(far: Far) -> None:
    texts = [
        client.completions.create(model=model, prompt="Once upon a time", **GREEDY).choices[0]
        for client, model in far.both()
    ]
    assert texts[0].text == texts[1].text
    assert texts[0].finish_reason == texts[1].finish_reason
    with far.here() as here:
        chunks = here.completions.create(
            model=far.name, prompt="Once upon a time", stream=True, **GREEDY
        )
        assert "".join(chunk.choices[0].text for chunk in chunks) == texts[0].text


def test_responses(far: Far) -> None:
    text = HI[0]["content"]
    with far.here() as here:
        said = whole(here, far.name, HI, **GREEDY)[0][0].content
        fields = {"model": far.name, "input": text, "temperature": 0, "max_output_tokens": 48}
        assert here.responses.create(**fields).output_text == said
        events = [*here.responses.create(stream=True, **fields)]
        parts = [one.delta for one in events if one.type == "response.output_text.delta"]
        assert "".join(parts) == said


CLAUDE = {"max_tokens": 48, "extra_body": {"temperature": 0}}  # its client has no such argument


def test_claude_gets_an_answer(far: Far) -> None:
    with far.here() as here, far.claude() as claude:
        [choice], counts = whole(here, far.name, HI, **GREEDY)
        message = claude.messages.create(model=far.name, messages=HI, **CLAUDE)
        assert "".join(part.text for part in message.content) == choice.content
        read = message.usage.input_tokens + message.usage.cache_read_input_tokens
        assert (read, message.usage.output_tokens) == counts


def test_claude_gets_a_stream(far: Far) -> None:
    with far.here() as here, far.claude() as claude:
        said = whole(here, far.name, HI, **GREEDY)[0][0].content
        with claude.messages.stream(model=far.name, messages=HI, **CLAUDE) as stream:
            assert "".join(stream.text_stream) == said
            assert stream.get_final_message().stop_reason in ("end_turn", "max_tokens")


def test_claude_calls_a_tool(far: Far) -> None:
    tool = {"name": "add", "description": "Adds.", "input_schema": TWO_NUMBERS}
    with far.claude() as claude:
        message = claude.messages.create(
            model=far.name, messages=HI, tools=[tool], **(CLAUDE | {"max_tokens": 200}),
            tool_choice={"type": "any", "disable_parallel_tool_use": True},
        )  # fmt: skip
    if far.kind == "llama-server":
        return
    [call] = [part for part in message.content if part.type == "tool_use"]
    assert call.name == "add"
    assert {*call.input} == {"a", "b"} or far.kind == "vllm"
    assert message.stop_reason == "tool_use"
