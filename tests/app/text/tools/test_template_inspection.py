"""Forms of calls come from the templates of families; models without any read of tools in words."""

import re

import pytest

from app.request import Message, Tool, ToolCall
from app.text.template import ChatTemplate
from app.text.tools.call_format import DEFAULT_FORM, CallForm, PairForm
from app.text.tools.prompt_fallback import tools_in_words
from app.text.tools.template_inspection import deduced
from tests.app.text.tools import templates

CONTROL = re.compile(r"<\|[a-z]+\|>")


def form_of(source: str, control: re.Pattern[str] | None = None) -> CallForm | None:
    return deduced(ChatTemplate(source, {}).render, control)


# GLM's tags without line breaks: only a tag ends a name.
CLOSE = (
    templates.GLM.replace("c.name }}\n", "c.name }}").replace("\n{% endfor", "{%- endfor")
    .replace("</arg_key>\n", "</arg_key>").replace("%}\n<arg_key>", "%}<arg_key>")
    .replace("\n</tool_call>", "</tool_call>")
)  # fmt: skip
CLOSE_PAIR = PairForm("<arg_key>", "</arg_key><arg_value>", "</arg_value>")
MINIMAX_FRAME = ('\n<minimax:tool_call>\n<invoke name="', '">\n', "</invoke>\n</minimax:tool_call>")
MINIMAX_PAIR = PairForm('<parameter name="', '">', "</parameter>\n")
OTHER_TAGS = templates.MINIMAX.replace(
    """'">' }}{{ v""", """('" text>' if v is string else '">') }}{{ v"""
)


@pytest.mark.parametrize(
    ("source", "form"),
    [
        (templates.HERMES, DEFAULT_FORM),
        (templates.THINKING, DEFAULT_FORM),
        (templates.LLAMA, CallForm('{"name": "', '", "parameters": ', "}")),
        (templates.LISTED, CallForm('[TOOL_CALLS] [{"name": "', '", "arguments": ', "}]")),
        (templates.NAME_FIRST, CallForm("[TOOL_CALLS]", "[ARGS]", "", "")),
        (templates.NO_TOOLS, None),
        (templates.NO_JSON, None),
        (templates.LISTED.replace("if ids", ""), None),  # with ids that it makes up
        (templates.CODER, templates.CODER_FORM),
        (templates.GLM, templates.GLM_FORM),
        (CLOSE, CallForm("<tool_call>", "", "</tool_call>", "\n", CLOSE_PAIR)),
        (templates.MINIMAX, CallForm(*MINIMAX_FRAME, None, MINIMAX_PAIR)),
        (OTHER_TAGS, None),  # around numbers
        (templates.CODER.replace("'\\n</parameter>\\n'", "'\\n'"), None),  # no end of an argument
    ],
)
def test_form_of_a_template(source: str, form: CallForm | None) -> None:
    assert form_of(source) == form


def test_tag_and_opening_of_a_form() -> None:
    bare, listed = form_of(templates.LLAMA), form_of(templates.LISTED)
    assert (bare.tag, bare.opening, listed.tag) == ("", '{"name": "', "[TOOL_CALLS]")
    assert OTHER_TAGS != templates.MINIMAX


class TestControlTokens:
    """Half of one is no text that a model could be held to."""

    ENDED = templates.HERMES.replace(
        "{%- endfor %}<|im_end|>",
        "{%- endfor %}{{ '<|iz_end|>' if m.tool_calls else '<|im_end|>' }}",
    )

    def test_the_end_of_a_message_is_no_part_of_calls(self) -> None:
        assert form_of(self.ENDED) == CallForm(
            DEFAULT_FORM.before, DEFAULT_FORM.between, DEFAULT_FORM.after + "<|iz", None
        )
        assert form_of(self.ENDED, re.compile(r"<\|i[mz]_end\|>")) == DEFAULT_FORM

    def test_one_that_begins_a_call_is_whole(self) -> None:
        begun = templates.LLAMA.replace("+ '{\"name", "+ '<|call|>{\"name").replace(
            "+ m.content", "+ '<|cool|>' + m.content"
        )
        assert form_of(begun).before == 'all|>{"name": "'
        assert form_of(begun, CONTROL).before == '<|call|>{"name": "'


ADD = Tool("add", "Adds.", {"type": "object", "properties": {"a": {"type": "integer"}}})
CALLS = (ToolCall("c1", "add", {"a": 1}), ToolCall("c2", "add", {"a": 2}))


def test_without_tools_in_a_template_calls_and_results_are_text() -> None:
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
        "The function add returned:\n1\nThe function add returned:\n2\nGo on."
    )
    assert found[3:] == [Message("assistant", "Done."), Message("user", "Thanks.")]


def test_a_conversation_without_tools_stays_what_it_is() -> None:
    story = [Message("user", "a"), Message("user", "b"), Message("assistant", "c")]
    assert tools_in_words(story, []) == story


def test_tools_are_listed_with_the_form_of_a_call() -> None:
    [system, asked] = tools_in_words([Message("user", "hi")], [ADD, ADD])
    assert asked == Message("user", "hi")
    assert system.role == "system"
    listed = system.content.partition("<tools>\n")[2].partition("\n</tools>")[0].splitlines()
    assert len(listed) == 2
    assert '{"name": "NAME", "arguments": {...}}' in system.content
