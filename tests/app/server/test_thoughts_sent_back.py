"""Thoughts that programs send back: models that think between calls go on from them."""

import pydantic
import pytest

from app.request import Message, ToolCall
from app.server.anthropic.schemas import Conversation
from app.server.openai_chat.schemas import ChatMessage
from app.server.openai_responses.schemas import Items

CALL = ToolCall("c1", "add", {"a": 1})
OPENAI = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}
ANTHROPIC = {"type": "tool_use", "id": "c1", "name": "add", "input": {"a": 1}}
ITEM = {"type": "function_call", "call_id": "c1", "name": "add", "arguments": '{"a": 1}'}
ASKED = {"role": "user", "content": "17 + 25?"}


@pytest.mark.parametrize(
    ("fields", "thought"),
    [
        ({"reasoning_content": "I add."}, "I add."),
        ({"reasoning": "I add."}, "I add."),
        ({"reasoning_content": None, "reasoning": None}, ""),
        ({"reasoning": {"effort": "high"}}, ""),  # of other programs
        ({}, ""),
    ],
)
def test_in_chats(fields, thought):
    sent = ChatMessage(role="assistant", content=None, tool_calls=[OPENAI], **fields)
    assert sent.message == Message("assistant", "", (CALL,), reasoning=thought)


def test_that_are_no_text_are_refused_in_chats():
    with pytest.raises(pydantic.ValidationError, match="half of a surrogate pair"):
        ChatMessage(role="assistant", content="", reasoning_content="\ud83d")


def test_as_blocks():
    read = pydantic.TypeAdapter(Conversation).validate_python
    thoughts = [
        {"type": "thinking", "thinking": "I add.", "signature": ""},
        {"type": "redacted_thinking", "data": "..."},
    ]
    said = {"type": "text", "text": "Well."}
    assert read([{"role": "assistant", "content": [*thoughts, said, ANTHROPIC]}]) == (
        Message("assistant", "Well.", (CALL,), reasoning="I add."),
    )
    with pytest.raises(pydantic.ValidationError, match="half of a surrogate pair"):
        read([{"role": "assistant", "content": [{"type": "thinking", "thinking": "\udc00"}]}])


def thought_of(*texts, name="content"):
    parts = [{"type": "reasoning_text", "text": text} for text in texts]
    return {"type": "reasoning", "id": "rs_1", "summary": [], name: parts}


@pytest.mark.parametrize(
    ("items", "expected"),
    [
        ([thought_of("I ", "add."), ITEM], [Message("assistant", "", (CALL,), reasoning="I add.")]),
        (
            [thought_of("I add."), {"role": "assistant", "content": "42"}],
            [Message("assistant", "42", reasoning="I add.")],
        ),
        (
            [thought_of("In short.", name="summary"), ITEM],
            [Message("assistant", "", (CALL,), reasoning="In short.")],
        ),
        (
            [thought_of("One."), {"role": "assistant", "content": "Well."}, thought_of("Two."), ITEM],
            [Message("assistant", "Well.", (CALL,), reasoning="One.\n\nTwo.")],
        ),
        ([thought_of("Nothing came of it."), ASKED], [Message("user", "17 + 25?")]),
        ([thought_of(), ITEM], [Message("assistant", "", (CALL,))]),
        ([{"type": "reasoning", "id": "rs_1", "content": "odd"}, ITEM], [Message("assistant", "", (CALL,))]),
        ([ASKED, thought_of("At the end.")], [Message("user", "17 + 25?")]),
    ],
)  # fmt: skip
def test_as_items(items, expected):
    assert list(pydantic.TypeAdapter(Items).validate_python(items)) == expected
