"""OpenAI's newer protocol over HTTP: the same answers, as items and as named events."""

import json
from collections.abc import Iterator
from typing import Annotated, Any

import openai
import pydantic
import pytest

from app.request import Completion, Delta, Message, ToolCall
from app.server.errors import ApiError
from app.server.openai_responses.answer import ResponsesProtocol
from app.server.openai_responses.kept import Kept
from app.server.openai_responses.schemas import ResponsesBody, joined
from engine.request import FinishReason, Logprob
from tests.app.history.replies import stats
from tests.app.server import serving
from tests.app.server.fake_assistant import BUG, CRASH
from tests.app.server.serving import (
    ADD_TOOL,
    STORY,
    SUM,
    Running,
    answer,
    chat,
    post,
    story_of_a_call,
)

ADD = {"type": "function", **serving.ADD, "strict": True}


class Person(pydantic.BaseModel):
    """Whatever is said, it ends."""

    name: Annotated[str, pydantic.Field(max_length=12)]
    age: int = pydantic.Field(ge=18, le=30)


@pytest.fixture
def client(url: str) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, timeout=60) as made:
        yield made


def ask(url: str, **fields: Any) -> dict[str, Any]:
    return answer(url, "responses", **{"input": SUM, **fields})


def events(url: str, **fields: Any) -> list[dict[str, Any]]:
    """Of a stream, numbered in order."""
    bodies = serving.events(url, "responses", **{"input": SUM, **fields})
    assert [body["sequence_number"] for body in bodies] == [*range(len(bodies))]
    return bodies


def test_a_text_gets_what_a_chat_gets(url: str, client: openai.OpenAI) -> None:
    wanted = chat(url, [{"role": "user", "content": SUM}])
    found = client.responses.create(model="pocket", input=SUM)
    assert found.output_text == wanted
    assert (found.status, found.error, found.incomplete_details) == ("completed", None, None)
    assert found.usage is not None
    assert found.usage.total_tokens == found.usage.input_tokens + found.usage.output_tokens
    assert found.usage.output_tokens > 0
    for drafter in ("none", "suffix", "specexec"):
        again = client.responses.create(model="pocket", input=SUM, extra_body={"drafter": drafter})
        assert again.output_text == wanted


def test_a_conversation_of_items_is_the_same_as_one_of_messages(url: str) -> None:
    content = [{"type": "output_text", "text": "42", "annotations": []}]
    items = [
        {"role": "user", "content": [{"type": "input_text", "text": "What is "}, {"type": "input_text", "text": "17 + 25?"}]},
        {"type": "reasoning", "id": "rs_1", "summary": []},
        {"type": "message", "id": "msg_1", "status": "completed", "role": "assistant", "content": content},
        {"type": "message", "role": "user", "content": "And 3 more?"},
    ]  # fmt: skip
    found = ask(url, input=items, instructions="Be brief.")
    assert found["output"][0]["content"][0]["text"] == chat(url, STORY)
    assert found["instructions"] == "Be brief."
    developer = [{"role": "developer", "content": "Be brief."}, *items]
    assert ask(url, input=developer)["output"][0]["content"] == found["output"][0]["content"]


def test_calls_belong_to_the_message_that_they_came_with() -> None:
    one, two = (
        {"type": "function_call", "call_id": name, "name": "add", "arguments": '{"a": 1}'}
        for name in ("c1", "c2")
    )
    result = {"type": "function_call_output", "call_id": "c1", "output": "42"}
    asked, said = {"role": "user", "content": SUM}, {"role": "assistant", "content": "Well."}
    calls = (ToolCall("c1", "add", {"a": 1}), ToolCall("c2", "add", {"a": 1}))
    came = Message("tool", "42", answers="c1")
    question = Message("user", SUM)
    assert read([asked, one, two, result]) == (question, Message("assistant", "", calls), came)
    assert read([asked, said, one, result, two]) == (
        question,
        Message("assistant", "Well.", calls[:1]),
        came,
        Message("assistant", "", calls[1:]),
    )


def read(items: list[dict[str, Any]]) -> tuple[Message, ...]:
    """The messages of a request that has these items."""
    body = ResponsesBody.model_validate({"model": "pocket", "input": items})
    return body.resolved(Kept()).chat_request.messages


def test_a_last_token_without_text_has_its_log_probability() -> None:
    asked = ResponsesBody(model="pocket", input=SUM, top_logprobs=0)
    protocol = ResponsesProtocol(asked.resolved(Kept()), lambda _: b"x", Kept())
    first, second = Logprob(1, -0.5), Logprob(2, -0.7)
    report = Completion("x", (1, 2), FinishReason.LENGTH, stats(), logprobs=(first, second))
    found = [*protocol.delta(0, Delta(text="x", token_ids=(1,), logprobs=(first,)))]
    found += protocol.delta(0, Delta(token_ids=(2,), logprobs=(second,)))
    found += protocol.last(0, report)
    logprobs = [one["logprob"] for event in found if "delta" in event for one in event["logprobs"]]
    assert logprobs == [-0.5, -0.7]
    [part] = found[-1]["response"]["output"][0]["content"]
    assert [one["logprob"] for one in part["logprobs"]] == logprobs


def test_a_stream_equals_the_whole_answer(url: str) -> None:
    whole, found = ask(url), events(url, drafter="none")
    text = whole["output"][0]["content"][0]["text"]
    names = [event["type"].removeprefix("response.") for event in found]
    assert names[:4] == ["created", "in_progress", "output_item.added", "content_part.added"]
    assert names[-4:] == ["output_text.done", "content_part.done", "output_item.done", "completed"]
    deltas = found[4:-4]
    assert {event["type"] for event in deltas} == {"response.output_text.delta"}
    assert "".join(event["delta"] for event in deltas) == text == found[-4]["text"]
    assert len(deltas) > 1
    last, first = found[-1]["response"], found[0]["response"]
    assert last["output"] == [found[-2]["item"]]
    assert (first["id"], first["status"], first["output"]) == (last["id"], "in_progress", [])
    ids = {event["item_id"] for event in found[3:-2]} | {found[2]["item"]["id"]}
    assert ids == {last["output"][0]["id"]}
    assert last["usage"]["output_tokens"] == whole["usage"]["output_tokens"]
    assert "timings" in last
    assert "speculation" in last


def test_openais_client_follows_a_stream(url: str, client: openai.OpenAI) -> None:
    with client.responses.stream(model="pocket", input=SUM) as stream:
        parts = [event.delta for event in stream if event.type == "response.output_text.delta"]
        final = stream.get_final_response()
    assert "".join(parts) == final.output_text == chat(url, [{"role": "user", "content": SUM}])


def test_openais_client_reads_an_answer_into_a_class(url: str, client: openai.OpenAI) -> None:
    asked = "Extract the name and the age: Anna Berg is 34 years old."
    found = client.responses.parse(model="pocket", input=asked, text_format=Person).output_parsed
    assert found is not None
    assert 18 <= found.age <= 30
    form = {"type": "json_object"}
    answer = ask(url, input=asked, text={"format": form})
    assert isinstance(json.loads(answer["output"][0]["content"][0]["text"]), dict)
    assert answer["text"] == {"format": form}
    size = ask(url, input=asked, grammar='root ::= "small" | "large"')
    assert size["output"][0]["content"][0]["text"] in ("small", "large")


def test_a_function_is_called_and_its_result_is_read(client: openai.OpenAI, url: str) -> None:
    choice = {"type": "function", "name": "add"}
    fields: Any = {"model": "pocket", "tools": [ADD]}
    first = client.responses.create(input=SUM, tool_choice=choice, **fields)
    (call,) = first.output
    assert (call.type, call.name, call.status) == ("function_call", "add", "completed")
    assert [*json.loads(call.arguments)] == ["a", "b"]
    assert first.tool_choice.model_dump() == choice
    assert first.tools[0].model_dump(include=set(ADD)) == ADD
    result = {"type": "function_call_output", "call_id": call.call_id, "output": "42"}
    items = [{"role": "user", "content": SUM}, call.model_dump(), result]
    second = client.responses.create(input=items, **fields)
    messages = story_of_a_call(call.call_id, call.arguments)
    assert second.output_text == chat(url, messages, tools=[ADD_TOOL])


def test_a_call_is_streamed_in_parts(url: str) -> None:
    fields = {"tools": [ADD], "tool_choice": "required", "parallel_tool_calls": False}
    (call,) = ask(url, **fields)["output"]
    found = events(url, **fields)
    names = [event["type"].removeprefix("response.") for event in found]
    assert names[2] == "output_item.added"
    assert names[-3:] == ["function_call_arguments.done", "output_item.done", "completed"]
    assert set(names[3:-3]) == {"function_call_arguments.delta"}
    assert "".join(event["delta"] for event in found[3:-3]) == call["arguments"]
    assert found[-1]["response"]["output"][0]["arguments"] == call["arguments"]
    assert found[2]["item"]["arguments"] == ""


def test_log_probabilities_of_every_token(url: str) -> None:
    whole = ask(url, top_logprobs=2)["output"][0]["content"][0]
    found = events(url, include=["message.output_text.logprobs"], top_logprobs=2)
    logprobs = [one for event in found for one in event.get("logprobs", []) if "delta" in event]
    assert logprobs == found[-4]["logprobs"]
    pairs = zip(logprobs, whole["logprobs"], strict=True)
    assert all(abs(one["logprob"] - other["logprob"]) < 1e-3 for one, other in pairs)
    assert "".join(one["token"] for one in logprobs) == whole["text"]
    assert all(len(one["top_logprobs"]) == 2 for one in logprobs)
    assert ask(url)["output"][0]["content"][0]["logprobs"] == []


def test_an_answer_that_is_cut_short_says_so(url: str, client: openai.OpenAI) -> None:
    cut = client.responses.create(model="pocket", input=SUM, max_output_tokens=2)
    assert cut.status == cut.output[0].status == "incomplete"
    assert cut.incomplete_details is not None
    assert cut.incomplete_details.reason == "max_output_tokens"
    assert events(url, max_output_tokens=2)[-1]["type"] == "response.incomplete"


def test_a_failure_in_the_middle_is_an_event_and_keeps_its_secrets(running: Running) -> None:
    last = serving.events(running.url, "responses", input=BUG)[-1]
    assert last["type"] == "response.failed"
    assert last["response"]["status"] == "failed"
    assert last["response"]["error"]["code"] == "server_error"
    assert "secrets" not in str(last)


def test_an_answer_that_broke_off_is_an_error(running: Running) -> None:
    error = post(running.url, "responses", input=CRASH).json()["error"]
    assert "the engine's process ended by itself" in error["message"]
    long = post(running.url, "responses", input="word " * 2000)
    assert (long.status_code, long.json()["error"]["param"]) == (400, "input")
    assert long.json()["error"]["code"] == "context_length_exceeded"


def test_an_earlier_answer_is_named_instead_of_sent(url: str, client: openai.OpenAI) -> None:
    fields: Any = {"model": "pocket", "instructions": "Be brief."}
    first = client.responses.create(input=SUM, **fields)
    more = {"role": "user", "content": "And 3 more?"}
    wanted = ask(
        url, input=[{"role": "user", "content": SUM}, first.output[0].model_dump(), more], **fields
    )
    second = client.responses.create(input="And 3 more?", previous_response_id=first.id, **fields)
    assert second.output_text == wanted["output"][0]["content"][0]["text"]
    assert second.usage is not None
    assert second.usage.input_tokens == wanted["usage"]["input_tokens"]
    assert (second.previous_response_id, second.store) == (first.id, True)
    third = ask(url, input="Thanks.", previous_response_id=second.id)  # without instructions
    story = [
        STORY[1],
        said(first.output_text),
        STORY[3],
        said(second.output_text),
        {"role": "user", "content": "Thanks."},
    ]
    assert third["output"][0]["content"][0]["text"] == chat(url, story)


def said(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


@pytest.mark.parametrize("stream", [False, True])
def test_items_of_an_answer_are_named_instead_of_sent(url: str, stream: bool) -> None:
    """Vercel's client names calls and texts of earlier steps, unless it is told not to."""
    fields: dict[str, Any] = {"tools": [ADD], "max_output_tokens": 40}
    forced = {
        **fields,
        "max_output_tokens": 200,
        "tool_choice": {"type": "function", "name": "add"},
    }
    first = events(url, **forced)[-1]["response"] if stream else ask(url, **forced)
    (call,) = first["output"]
    asked, result = (
        {"role": "user", "content": SUM},
        {"type": "function_call_output", "call_id": call["call_id"], "output": "42"},
    )
    whole = ask(url, input=[asked, call, result], **fields)
    named = ask(url, input=[asked, {"type": "item_reference", "id": call["id"]}, result], **fields)
    assert said_by(named) == said_by(whole)
    assert named["usage"]["input_tokens"] == whole["usage"]["input_tokens"]
    later = [asked, call, result, *whole["output"], asked]
    refers = [{"type": "item_reference", "id": item["id"]} for item in whole["output"]]
    again = ask(url, input=[asked, call, result, *refers, asked], **fields)
    assert said_by(again) == said_by(ask(url, input=later, **fields))


def said_by(response: dict[str, Any]) -> list[Any]:
    """The items without their ids."""
    return [
        {name: value for name, value in item.items() if name not in ("id", "call_id")}
        for item in response["output"]
    ]


def test_an_answer_can_be_read_again_until_it_is_deleted(client: openai.OpenAI) -> None:
    first = client.responses.create(model="pocket", input=SUM)
    again = client.responses.retrieve(first.id)
    assert (again.output_text, again.id, again.usage) == (first.output_text, first.id, first.usage)
    client.responses.delete(first.id)
    with pytest.raises(openai.NotFoundError, match="there is no response"):
        client.responses.retrieve(first.id)
    with pytest.raises(openai.NotFoundError):
        client.responses.delete(first.id)
    with pytest.raises(openai.BadRequestError, match="kept in memory, until this server stops"):
        client.responses.create(model="pocket", input="And?", previous_response_id=first.id)


def test_what_must_not_be_stored_is_not_kept(client: openai.OpenAI) -> None:
    first = client.responses.create(model="pocket", input=SUM, store=False)
    assert first.store is False
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(first.id)
    item: Any = {"type": "item_reference", "id": first.output[0].id}
    with pytest.raises(openai.BadRequestError, match="there is no item"):
        client.responses.create(model="pocket", input=[{"role": "user", "content": SUM}, item])


def test_the_oldest_answers_are_forgotten() -> None:
    kept = Kept(most=1000)
    for number in range(20):
        body = {"id": f"resp_{number}", "output": [{"id": f"msg_{number}", "type": "message"}]}
        kept.add(body, [Message("user", "x" * 100)])
    assert kept.item("msg_19")["type"] == "message"
    assert kept.response("resp_19", "name").conversation == (Message("user", "x" * 100),)
    for forgotten in range(12):
        with pytest.raises(ApiError):
            kept.response(f"resp_{forgotten}", "name")
    kept.add({"id": "long", "output": []}, [Message("user", "x" * 2000)])
    with pytest.raises(ApiError):
        kept.response("long", "name")
    kept.add({"id": "short", "output": []}, ())
    assert kept.response("short", "name").body["output"] == []


def test_joining_joined_messages_changes_nothing() -> None:
    think = {"type": "reasoning", "content": [{"type": "reasoning_text", "text": "Hm."}]}
    call = {"type": "function_call", "call_id": "c", "name": "add", "arguments": "{}"}
    result = {"type": "function_call_output", "call_id": "c", "output": "42"}
    asked = {"role": "user", "content": SUM}
    for items in (
        [asked, think, said("Well."), asked],
        [asked, think, call, result],
        [asked, think, said("Well."), think, call, call, result, think, said("42"), asked],
    ):
        messages = read(items)
        assert sum(message.reasoning.count("Hm.") for message in messages) == items.count(think)
        assert tuple(joined(messages)) == messages
