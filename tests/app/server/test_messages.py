"""Anthropic's protocol over HTTP: the same answers, as blocks and as named events."""

import json
from collections.abc import Iterator
from typing import Any

import anthropic
import pytest

from tests.app.server import serving
from tests.app.server.fake_assistant import BUG, CRASH
from tests.app.server.serving import (
    ADD_TOOL,
    STORY,
    TWO_NUMBERS,
    Running,
    answer,
    chat,
    story_of_a_call,
)

ASKED = STORY[1]
ADD: dict[str, Any] = {"name": "add", "description": "Adds two numbers.", "input_schema": TWO_NUMBERS}  # fmt: skip


@pytest.fixture
def claude(url: str) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=url, api_key="none", max_retries=0, timeout=60) as made:
        yield made


def asked(**fields: Any) -> dict[str, Any]:
    return {"max_tokens": 200, "messages": [ASKED], **fields}


def ask(url: str, **fields: Any) -> dict[str, Any]:
    return answer(url, "messages", **asked(**fields))


def events(url: str, **fields: Any) -> list[dict[str, Any]]:
    return serving.events(url, "messages", **asked(**fields))


def said(message: anthropic.types.Message) -> str:
    (block,) = message.content
    assert block.type == "text"
    return block.text


def test_a_text_gets_what_a_chat_gets(url: str, claude: anthropic.Anthropic) -> None:
    wanted = chat(url, [ASKED])
    for drafter in ("auto", "none", "suffix"):
        found = claude.messages.create(
            model="pocket", max_tokens=200, messages=[ASKED], extra_body={"drafter": drafter}
        )
        assert said(found) == wanted
        assert (found.stop_reason, found.role, found.type) == ("end_turn", "assistant", "message")
    counted = claude.messages.count_tokens(model="pocket", messages=[ASKED])
    cached = found.usage.cache_read_input_tokens or 0
    assert counted.input_tokens == found.usage.input_tokens + cached
    assert found.usage.output_tokens > 0


def test_a_conversation_of_blocks_is_the_same_as_one_of_messages(url: str) -> None:
    blocks = [
        {"role": "user", "content": [{"type": "text", "text": "What is "}, {"type": "text", "text": "17 + 25?"}]},
        {"role": "assistant", "content": [
            {"type": "thinking", "thinking": "Hm.", "signature": "x"}, {"type": "text", "text": "42"}]},
        {"role": "user", "content": "And 3 more?"},
    ]  # fmt: skip
    system = [{"type": "text", "text": "Be ", "cache_control": {"type": "ephemeral"}}, {"type": "text", "text": "brief."}]  # fmt: skip
    for prompt in ("Be brief.", system):
        found = ask(url, messages=blocks, system=prompt)
        assert found["content"] == [{"type": "text", "text": chat(url, STORY)}]


def test_a_started_answer_is_continued(url: str, claude: anthropic.Anthropic) -> None:
    whole = chat(url, [ASKED])
    begun = " ".join(whole.split(" ")[:3])
    said_so_far = [ASKED, {"role": "assistant", "content": begun}]
    for drafter in ("auto", "none", "lookup"):
        rest = ask(url, messages=said_so_far, drafter=drafter)
        assert rest["content"] == [{"type": "text", "text": whole.removeprefix(begun)}]
    streamed = events(url, messages=said_so_far)[2:-3]
    assert begun + "".join(event["delta"]["text"] for event in streamed) == whole
    assert chat(url, said_so_far, continue_final_message=True) == whole.removeprefix(begun)
    counted = claude.messages.count_tokens(model="pocket", messages=said_so_far)
    usage = rest["usage"]
    cached = usage["cache_read_input_tokens"] or 0
    assert counted.input_tokens == usage["input_tokens"] + cached


def test_a_stream_equals_the_whole_message(url: str, claude: anthropic.Anthropic) -> None:
    whole, found = ask(url), events(url, drafter="none")
    names = [event["type"] for event in found]
    assert names[:2] == ["message_start", "content_block_start"]
    assert names[-3:] == ["content_block_stop", "message_delta", "message_stop"]
    assert set(names[2:-3]) == {"content_block_delta"}
    assert len(names[2:-3]) > 1
    text = "".join(event["delta"]["text"] for event in found[2:-3])
    assert whole["content"] == [{"type": "text", "text": text}]
    assert found[0]["message"]["content"] == []
    assert found[-2]["delta"]["stop_reason"] == whole["stop_reason"] == "end_turn"
    assert found[-2]["usage"]["output_tokens"] == whole["usage"]["output_tokens"]
    assert "speculation" in whole
    with claude.messages.stream(model="pocket", max_tokens=200, messages=[ASKED]) as stream:
        assert "".join(stream.text_stream) == text
        assert said(stream.get_final_message()) == text


def test_a_tool_is_called_and_its_result_is_read(url: str, claude: anthropic.Anthropic) -> None:
    fields: Any = {"model": "pocket", "max_tokens": 200, "tools": [ADD]}
    forced = {"type": "tool", "name": "add"}
    first = claude.messages.create(messages=[ASKED], tool_choice=forced, **fields)
    (call,) = first.content
    assert call.type == "tool_use"
    assert (call.name, [*call.input], first.stop_reason) == ("add", ["a", "b"], "tool_use")
    text = [{"type": "text", "text": "42"}]
    result = {"type": "tool_result", "tool_use_id": call.id, "content": text}
    messages = [
        ASKED,
        {"role": "assistant", "content": first.content},
        {"role": "user", "content": [result]},
    ]
    second = claude.messages.create(messages=messages, **fields)
    same = story_of_a_call(call.id, json.dumps(call.input))
    assert said(second) == chat(url, same, tools=[ADD_TOOL])


def test_a_call_is_streamed_in_parts(url: str, claude: anthropic.Anthropic) -> None:
    fields = {"tools": [ADD], "tool_choice": {"type": "any", "disable_parallel_tool_use": True}}
    (call,) = ask(url, **fields)["content"]
    found = events(url, **fields)
    assert found[1]["content_block"] == {**call, "id": found[1]["content_block"]["id"], "input": {}}
    parts = [event["delta"]["partial_json"] for event in found[2:-3]]
    assert json.loads("".join(parts)) == call["input"]
    assert found[-2]["delta"]["stop_reason"] == "tool_use"
    with claude.messages.stream(model="pocket", **asked(**fields)) as stream:
        (block,) = stream.get_final_message().content
    assert block.type == "tool_use"
    assert block.input == call["input"]


def test_an_answer_in_a_format(url: str) -> None:
    form = {"type": "json_schema", "schema": {**TWO_NUMBERS, "additionalProperties": False}}
    (block,) = ask(url, output_config={"format": form})["content"]
    assert [*json.loads(block["text"])] == ["a", "b"]
    assert ask(url, grammar='root ::= "yes" | "no"')["content"][0]["text"] in ("yes", "no")


def test_an_answer_that_is_cut_short(url: str) -> None:
    assert ask(url, max_tokens=2)["stop_reason"] == "max_tokens"
    assert events(url, max_tokens=2)[-2]["delta"]["stop_reason"] == "max_tokens"


def test_anthropics_client_raises_each_error(running: Running) -> None:
    with anthropic.Anthropic(base_url=running.url, api_key="none", max_retries=0) as claude:
        for content, words in (
            (CRASH, "process ended by itself"),
            ("word " * 2000, "2000 tokens > 1000"),
        ):
            with pytest.raises(anthropic.APIStatusError, match=words):
                claude.messages.create(
                    model="pocket", max_tokens=9000, messages=[{"role": "user", "content": content}]
                )
        bug: Any = {"model": "pocket", "max_tokens": 99, "messages": [{"role": "user", "content": BUG}]}  # fmt: skip
        with (
            pytest.raises(anthropic.APIStatusError, match="log of the server") as caught,
            claude.messages.stream(**bug) as stream,
        ):
            stream.until_done()
    assert "secrets" not in str(caught.value)


@pytest.mark.parametrize("more", [{}, {"tools": [ADD]}, {"tools": [ADD], "tool_choice": {"type": "any"}}, {"stop_sequences": ["4"]}])  # fmt: skip
def test_no_tokens_read_the_prompt_and_say_nothing(url: str, more: dict[str, Any]) -> None:
    """Programs send a long prompt ahead of the question, so that it is cached."""
    fields = {"system": f"Read {sorted(more)}.", **more, "max_tokens": 0}
    found = ask(url, **fields)
    assert (found["content"], found["stop_reason"], found["stop_sequence"]) == ([], "max_tokens", None)  # fmt: skip
    assert found["usage"]["output_tokens"] == 0
    again = ask(url, **{**fields, "max_tokens": 1})["usage"]
    assert again["cache_read_input_tokens"] > again["input_tokens"]
    streamed = events(url, **fields)
    kinds = ["message_start", "message_delta", "message_stop"]
    assert [event["type"] for event in streamed] == kinds
    assert streamed[1]["delta"] == {"stop_reason": "max_tokens", "stop_sequence": None}
