"""How much a model shall think, as each protocol says it."""

import pydantic
import pytest

from app.server.anthropic.schemas import MessagesBody
from app.server.openai_chat.schemas import ChatBody
from app.server.openai_responses.schemas import ResponsesBody

HI = [{"role": "user", "content": "hi"}]


@pytest.mark.parametrize(
    ("effort", "thinking"),
    [
        (None, ""), ("none", "off"), ("minimal", "low"), ("low", "low"), ("medium", "medium"),
        ("high", "high"), ("xhigh", "high"), ("max", "high"),
    ],
)  # fmt: skip
def test_by_effort(effort, thinking):
    chat = ChatBody(model="m", messages=HI, reasoning_effort=effort)
    response = ResponsesBody(model="m", input=HI, reasoning={"effort": effort, "summary": "auto"})
    assert chat.chat_request.thinking == response.chat_request.thinking == thinking


@pytest.mark.parametrize(
    ("options", "thinking"),
    [
        ({"type": "enabled", "budget_tokens": 1024}, "on"),
        ({"type": "adaptive"}, ""),
        ({"type": "disabled"}, "off"),
        (None, ""),
    ],
)
def test_by_switch(options, thinking):
    request = MessagesBody(model="m", messages=HI, max_tokens=5, thinking=options)
    assert request.chat_request.thinking == thinking


def test_nothing_is_asked_where_nothing_is_said():
    assert ResponsesBody(model="m", input=HI).chat_request.thinking == ""
    assert ChatBody(model="m", messages=HI).chat_request.variables == {}


def test_by_the_templates_own_variables():
    sent = {"enable_thinking": False, "custom_instructions": "Be brief."}
    assert (
        ChatBody(model="m", messages=HI, chat_template_kwargs=sent).chat_request.variables == sent
    )


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("reasoning_effort", "enormous"),
        ("chat_template_kwargs", {"a": "\ud83d"}),
        ("chat_template_kwargs", {"a": float("inf")}),
        ("chat_template_kwargs", [1]),
    ],
)
def test_what_cannot_be_is_refused(field, value):
    with pytest.raises(pydantic.ValidationError, match=field):
        ChatBody(model="m", messages=HI, **{field: value})
    with pytest.raises(pydantic.ValidationError, match="type"):
        MessagesBody(model="m", messages=HI, max_tokens=5, thinking={"type": "perhaps"})
