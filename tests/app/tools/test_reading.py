"""Answers are read the same whatever pieces they come in."""

import json
from itertools import pairwise

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from app.tools.form import TOLD, CallForm
from app.tools.reading import CallReader

BARE = CallForm('{"name": "', '", "parameters": ', "}")
LISTED = CallForm('[TOOL_CALLS] [{"name": "', '", "arguments": ', "}]")
NAME_FIRST = CallForm("[TOOL_CALLS]", "[ARGS]", "", "")
FORMS = (TOLD, BARE, LISTED, NAME_FIRST)

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)  # fmt: skip
arguments = st.dictionaries(st.text(max_size=4), values, max_size=3)


def written(form: CallForm, name: str, given_arguments: object) -> str:
    return f"{form.before}{name}{form.between}{json.dumps(given_arguments)}{form.after}"


def read(form: CallForm, pieces: list[str]) -> tuple[str, list[tuple[str, str]]]:
    """What was said, and of every call its name and arguments."""
    reader = CallReader(form, ["add", "look_up"])
    said, calls = "", {}
    for piece in pieces:
        heard = reader.feed(piece)
        said += heard.said
        for part in heard.calls:
            if part.name:
                calls[part.index] = [part.name, ""]
                assert part.id.startswith("call_")
            calls[part.index][1] += part.arguments
    return said + reader.end(), [(name, text) for name, text in calls.values()]


def cut(text: str, places: list[int]) -> list[str]:
    edges = sorted({0, len(text), *(place % (len(text) + 1) for place in places)})
    return [text[a:b] for a, b in pairwise(edges)]


@given(st.sampled_from(FORMS), arguments, st.lists(st.integers(0, 400), max_size=12))
def test_a_call_in_any_pieces(form: CallForm, told: dict, places: list[int]) -> None:
    text = written(form, "add", told)
    assert read(form, cut(text, places)) == ("", [("add", json.dumps(told))])


@given(st.sampled_from((TOLD, NAME_FIRST)), st.lists(arguments, max_size=3), st.integers(1, 9))
def test_text_and_several_calls_letter_by_letter(form: CallForm, told: list, size: int) -> None:
    calls = (form.separator or "").join(written(form, "look_up", one) for one in told)
    text = f"I look: <tool\n{calls}"
    pieces = [text[at : at + size] for at in range(0, len(text), size)]
    said = "I look: <tool" if told else "I look: <tool\n"
    assert read(form, pieces) == (said, [("look_up", json.dumps(one)) for one in told])


@given(st.sampled_from(FORMS), st.text(max_size=60), st.lists(st.integers(0, 60), max_size=9))
def test_other_text_stays_what_it_is(form: CallForm, text: str, places: list[int]) -> None:
    assume(not form.tag or form.tag not in text)
    assert read(form, cut(text, places)) == (text, [])


@pytest.mark.parametrize(
    "text",
    [
        '{"name": "Bob", "age": 3}',  # JSON that somebody asked for
        '{"name": "subtract", "parameters": {"a": 1}}',  # a tool that there is not
        'The call is {"name": "add", "parameters": {"a": 1}}',  # bare calls come first
        '{"name": "add", "para',  # the end came first
        '{"name": "add", "parameters": 5}',  # no object
    ],
)
def test_what_only_looks_like_a_bare_call_is_text(text: str) -> None:
    for size in (1, 4, 99):
        pieces = [text[at : at + size] for at in range(0, len(text), size)]
        assert read(BARE, pieces) == (text, [])


def test_a_call_that_was_cut_short_keeps_what_there_is() -> None:
    text = written(TOLD, "add", {"a": "long text"})[: -len(' text"}}\n</tool_call>')]
    assert read(TOLD, list(text)) == ("", [("add", '{"a": "long')])


def test_text_arrives_at_once_where_no_call_begins() -> None:
    reader = CallReader(TOLD, ["add"])
    assert [reader.feed(piece).said for piece in ("Hello ", "you <", "b> and <tool_", "x")] == [
        "Hello", " you", " <b> and", " <tool_x",
    ]  # fmt: skip
