"""Answers are taken apart the same whatever pieces they come in."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.request import Tool
from app.text.output_parser import OutputParser
from app.text.tools.call_format import TOLD
from app.text.tools.call_parser import ToolCallParser

texts = st.text(st.sampled_from("ab<>/ \n{}think"), max_size=30)
CALL = '<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call>'


def heard(text: str, places: list[int] = (), *, tools: bool = False) -> tuple[str, str, str]:
    """The thought, what was said, and the arguments of calls."""
    hearing = OutputParser(ToolCallParser(TOLD, [Tool("add")]) if tools else None)
    edges = sorted({0, len(text), *(place % (len(text) + 1) for place in places)})
    parts = [hearing.feed(text[a:b]) for a, b in pairwise(edges)]
    parts.append(hearing.end())
    calls = "".join(part.arguments for one in parts for part in one.calls)
    return "".join(one.thought for one in parts), "".join(one.said for one in parts), calls


@pytest.mark.parametrize(
    ("text", "thought", "said"),
    [
        ("Five.", "", "Five."),
        ("", "", ""),
        ("  Five. ", "", "  Five. "),
        ("<think>\nLet me.\n</think>\n\nFive.\n", "Let me.", "Five.\n"),
        ("\n<think>a  b</think>c", "a  b", "c"),
        ("<think>\n\n</think>\n\nFive.", "", "Five."),
        ("<think>\nLet me see \n", "Let me see", ""),  # it was cut short
        ("<think>a</th", "a</th", ""),
        ("<thin", "", "<thin"),
        ("<thinks>a</think>", "", "<thinks>a</think>"),
        ("So <think>a</think>", "", "So <think>a</think>"),
        ("<think>a</think>b<think>c</think>", "a", "b<think>c</think>"),
    ],
)
def test_a_thought_is_what_an_answer_begins_with(text: str, thought: str, said: str) -> None:
    assert heard(text) == (thought, said, "")
    assert heard(text, list(range(40))) == (thought, said, "")


@given(texts, texts, st.lists(st.integers(0, 90)), st.booleans())
def test_any_pieces_give_the_same(thought: str, said: str, places: list[int], tools: bool) -> None:
    for text in (said, f"<think>{thought}</think>{said}", f"<think>{thought}"):
        assert heard(text, places, tools=tools) == heard(text, tools=tools)


@given(st.lists(st.integers(0, 200)))
def test_calls_behind_a_thought(places: list[int]) -> None:
    text = f"<think>\nI add: {CALL}\n</think>\n\nNow: {CALL}"
    assert heard(text, places, tools=True) == (f"I add: {CALL}", "Now:", '{"a": 1}')


def test_text_goes_on_at_once_where_nothing_can_begin() -> None:
    hearing = OutputParser()
    assert [hearing.feed(piece).said for piece in ("H", "i <", "think>")] == ["H", "i <", "think>"]
    hearing = OutputParser()
    parts = [hearing.feed(piece) for piece in ("<think>a ", "b", " </", "c", "</think>d")]
    assert [part.thought for part in parts] == ["a", " b", "", " </c", ""]
    assert parts[-1].said == "d"
