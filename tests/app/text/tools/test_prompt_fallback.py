"""Conversations with tools in words, for models that were taught none."""

from app.request import Message, Tool, ToolCall
from app.text.tools.prompt_fallback import tools_in_words

ADD = Tool("add", "Adds.", {"type": "object", "properties": {"a": {"type": "integer"}}})
CALLS = (ToolCall("c1", "add", {"a": 1}), ToolCall("c2", "add", {"a": 2}))


def test_calls_and_results_are_text_and_roles_take_turns() -> None:
    story = [
        Message("user", "Add."),
        Message("assistant", "I add.", CALLS),
        Message("tool", "1", answers="c1"),
        Message("tool", "2", answers="c2"),
        Message("user", "Go on."),
        Message("assistant", "Done."),
        Message("user", "Thanks."),
    ]
    found = tools_in_words(story, [])
    assert [message.role for message in found] == ["user", "assistant"] * 2 + ["user"]
    assert found[1].content == (
        'I add.\n<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call>\n'
        '<tool_call>\n{"name": "add", "arguments": {"a": 2}}\n</tool_call>'
    )
    assert found[2].content == (
        "<tool_response>\n1\n</tool_response>\n<tool_response>\n2\n</tool_response>\nGo on."
    )
    assert found[3:] == [Message("assistant", "Done."), Message("user", "Thanks.")]


def test_a_conversation_without_tools_stays_what_it_is() -> None:
    story = [Message("user", "a"), Message("user", "b"), Message("assistant", "c")]
    assert tools_in_words(story, []) == story


def test_tools_are_listed_one_a_line_with_the_form_of_a_call() -> None:
    [system, asked] = tools_in_words([Message("user", "hi")], [ADD, ADD])
    assert asked == Message("user", "hi")
    assert system.role == "system"
    listed = system.content.partition("<tools>\n")[2].partition("\n</tools>")[0].splitlines()
    assert len(listed) == 2
    assert '{"name": "NAME", "arguments": {...}}' in system.content
