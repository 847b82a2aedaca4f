"""Forms of calls are read off the templates of families, and only where that can be done."""

import pytest

from app.template import ChatTemplate
from app.tools.form import TOLD, CallForm, deduced
from tests.app.tools import templates


def form_of(source: str, **specials: str) -> CallForm | None:
    return deduced(ChatTemplate(source, specials).render)


@pytest.mark.parametrize("source", [templates.HERMES, templates.THINKING])
def test_a_tagged_call(source: str) -> None:
    assert form_of(source) == TOLD


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
