"""Forms of calls are read off the templates of families, and only where that can be done."""

import re

import pytest

from app.text.template import ChatTemplate
from app.text.tools.call_format import DEFAULT_FORM, CallForm, PairForm
from app.text.tools.template_inspection import deduced
from tests.app.text.tools import templates

CONTROL = re.compile(r"<\|[a-z]+\|>")


def form_of(source: str, control: re.Pattern[str] | None = None) -> CallForm | None:
    return deduced(ChatTemplate(source, {}).render, control)


@pytest.mark.parametrize("source", [templates.HERMES, templates.THINKING])
def test_a_tagged_call(source: str) -> None:
    assert form_of(source) == DEFAULT_FORM


def test_a_call_that_looks_like_any_json_comes_alone() -> None:
    form = form_of(templates.LLAMA)
    assert form == CallForm('{"name": "', '", "parameters": ', "}")
    assert form.tag == ""
    assert form.opening == '{"name": "'


def test_a_list_of_calls_has_one() -> None:
    form = form_of(templates.LISTED)
    assert form == CallForm('[TOOL_CALLS] [{"name": "', '", "arguments": ', "}]")
    assert form.tag == "[TOOL_CALLS]"


def test_a_name_before_its_arguments() -> None:
    assert form_of(templates.NAME_FIRST) == CallForm("[TOOL_CALLS]", "[ARGS]", "", "")


@pytest.mark.parametrize(
    "source", [templates.NO_TOOLS, templates.NO_JSON, templates.LISTED.replace("if ids", "")]
)
def test_no_tools_no_json_and_made_up_ids_give_no_form(source: str) -> None:
    assert form_of(source) is None


class TestArgumentsInPairs:
    def test_tags_with_a_name_in_them(self) -> None:
        assert form_of(templates.CODER) == templates.CODER_FORM

    def test_tags_around_keys_and_around_values(self) -> None:
        assert form_of(templates.GLM) == templates.GLM_FORM

    def test_a_name_that_only_a_tag_ends(self) -> None:
        close = templates.GLM.replace("c.name }}\n", "c.name }}").replace(
            "\n{% endfor", "{%- endfor"
        )
        close = close.replace("</arg_key>\n", "</arg_key>").replace("%}\n<arg_key>", "%}<arg_key>")
        close = close.replace("\n</tool_call>", "</tool_call>")
        pair = PairForm("<arg_key>", "</arg_key><arg_value>", "</arg_value>")
        assert form_of(close) == CallForm("<tool_call>", "", "</tool_call>", "\n", pair)

    def test_one_frame_around_all_calls_has_one(self) -> None:
        pair = PairForm('<parameter name="', '">', "</parameter>\n")
        frame = '\n<minimax:tool_call>\n<invoke name="', '">\n', "</invoke>\n</minimax:tool_call>"
        assert form_of(templates.MINIMAX) == CallForm(*frame, None, pair)

    def test_other_tags_around_numbers_give_no_form(self) -> None:
        told = templates.MINIMAX.replace(
            """'">' }}{{ v""", """('" text>' if v is string else '">') }}{{ v"""
        )
        assert told != templates.MINIMAX
        assert form_of(told) is None

    def test_arguments_that_nothing_stands_behind_give_no_form(self) -> None:
        assert form_of(templates.CODER.replace("'\\n</parameter>\\n'", "'\\n'")) is None


class TestControlTokens:
    """Half of one is no text that a model could be held to."""

    ENDED = templates.HERMES.replace(
        "{%- endfor %}<|im_end|>",
        "{%- endfor %}{{ '<|iz_end|>' if m.tool_calls else '<|im_end|>' }}",
    )

    def test_another_end_of_a_message_with_calls_is_no_part_of_them(self) -> None:
        assert form_of(self.ENDED) == CallForm(
            DEFAULT_FORM.before, DEFAULT_FORM.between, DEFAULT_FORM.after + "<|iz", None
        )
        assert form_of(self.ENDED, re.compile(r"<\|i[mz]_end\|>")) == DEFAULT_FORM

    def test_one_that_a_call_begins_with_stands_in_it_whole(self) -> None:
        begun = templates.LLAMA.replace("+ '{\"name", "+ '<|call|>{\"name").replace(
            "+ m.content", "+ '<|cool|>' + m.content"
        )
        assert form_of(begun).before == 'all|>{"name": "'
        assert form_of(begun, CONTROL).before == '<|call|>{"name": "'
