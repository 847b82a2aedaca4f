"""Answers are split the same whatever pieces they come in."""

from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.request import Tool
from app.text.detokenizer import StopFilter
from app.text.output_parser import OutputParser
from app.text.reasoning.tags import Kind, Part, TagSplitter
from app.text.tools.call_format import DEFAULT_FORM
from app.text.tools.call_parser import ToolCallParser
from tests.app.text.parsing import cut, parsed_text

texts = st.text(st.sampled_from("ab<>/ \n{}think"), max_size=30)
CALL = '<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call>'


def split(text: str, places: list[int] = (), *, tools: bool = False) -> tuple[str, str, str]:
    """The reasoning, the text, and the arguments of calls."""
    calls = ToolCallParser(DEFAULT_FORM, [Tool("add")]) if tools else None
    delta = parsed_text(text, places, calls)
    assert delta.tagged == text
    return delta.reasoning, delta.text, "".join(part.arguments for part in delta.calls)


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
def test_reasoning_begins_an_answer(text: str, thought: str, said: str) -> None:
    assert split(text) == (thought, said, "")
    assert split(text, list(range(40))) == (thought, said, "")


@given(texts, texts, st.lists(st.integers(0, 90)), st.booleans())
def test_any_pieces_give_the_same(thought: str, said: str, places: list[int], tools: bool) -> None:
    for text in (said, f"<think>{thought}</think>{said}", f"<think>{thought}"):
        assert split(text, places, tools=tools) == split(text, tools=tools)


@given(st.lists(st.integers(0, 200)))
def test_calls_after_reasoning(places: list[int]) -> None:
    text = f"<think>\nI add: {CALL}\n</think>\n\nNow: {CALL}"
    assert split(text, places, tools=True) == (f"I add: {CALL}", "Now:", '{"a": 1}')


def test_text_comes_at_once_where_nothing_can_begin() -> None:
    def news(pieces: list[str]) -> list[tuple[str, str]]:
        parser, tags, found = OutputParser(StopFilter(())), TagSplitter(), []
        for piece in pieces:
            parser.feed(tags.feed(piece))
            delta = parser.delta()
            found.append((delta.reasoning, delta.text))
        return found

    assert news(["H", "i <", "think>"]) == [("", "H"), ("", "i <"), ("", "think>")]
    pieces = ["<think>a ", "b", " </", "c", "</think>d"]
    assert news(pieces) == [("a", ""), (" b", ""), ("", ""), (" </c", ""), ("", "d")]


@given(
    texts, texts, st.lists(st.integers(0, 90)), st.sampled_from(["a", "</think>", "k>\nb", "< "])
)
def test_a_stop_text_cuts_all(thought: str, said: str, places: list[int], stop: str) -> None:
    text = f"<think>{thought}</think>{said}"
    parser, tags = OutputParser(StopFilter([stop])), TagSplitter()
    for piece in cut(text, places):
        parser.feed(tags.feed(piece))
    parser.end(tags.end())
    assert parser.delta().tagged == text.partition(stop)[0]
    assert parser.stopped == (stop in text)


def test_the_rest_of_a_text_that_a_client_started_is_text() -> None:
    parser = OutputParser(StopFilter(()), typed=False)
    parser.end([Part(Kind.REASONING, " so"), Part(Kind.END, "</think>"), Part(Kind.TEXT, "5")])
    delta = parser.delta()
    assert (delta.reasoning, delta.text) == ("", " so</think>5")


def counted(tokens: list[str], opened: str = "") -> int:
    parser, tags = OutputParser(StopFilter(()), opened=opened), TagSplitter(opened)
    for token in tokens:
        parser.feed(tags.feed(token))
    return parser.reasoning_tokens


@pytest.mark.parametrize(
    ("tokens", "opened", "expected"),
    [
        (["<think>", "So", "</think>", "Five", "."], "", 3),
        (["\n", "<", "think", ">", "So", "</", "think>\n\n", "Five"], "", 7),
        (["", "<think>", "", "so"], "", 4),
        (["So", " it", "</think>", "Five"], "<think>\n", 3),
        (["Five", "<think>", "no", "</think>"], "", 0),
        (["<", "b>", "bold"], "", 0),
        ([], "<think>", 0),
    ],
)
def test_number_of_reasoning_tokens(tokens: list[str], opened: str, expected: int) -> None:
    assert counted(tokens, opened) == expected


@given(places=st.lists(st.integers(0, 45)), said=st.sampled_from(["Five.", "", "a <think> b"]))
def test_the_end_tag_is_the_last_reasoning_token(places: list[int], said: str) -> None:
    thought = " <think>\nso < / it is</think>"
    text = thought + said
    tokens = cut(text, places)
    begins = [0, *accumulate(map(len, tokens))][:-1]
    assert counted(tokens) == sum(begin < len(thought) for begin in begins)
