"""Answers that are a call without its marks."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.request import Tool
from app.text.tools.call_format import DEFAULT_FORM, CallForm
from app.text.tools.call_parser import ToolCallParser
from tests.app.text.parsing import calls_of, cut

NO_TAG = CallForm('{"name": "', '", "parameters": ', "}")  # Llama 3's
WEATHER, NOOP = Tool("get_weather"), Tool("noop")
ROME = '{"name": "get_weather", "arguments": {"city": "Rome"}}'
FOUND = [("get_weather", '{"city": "Rome"}')]


def read(
    text: str,
    places: list[int],
    given_start: str = "",
    *,
    cut_off: bool = False,
    form: CallForm = DEFAULT_FORM,
) -> tuple[str, list[tuple[str, str]]]:
    """What an answer in these pieces says, and its calls."""
    reader = ToolCallParser(form, [WEATHER, NOOP], given_start)
    steps = [reader.feed(piece) for piece in cut(text, places)]
    steps.append(reader.end(cut=cut_off))
    calls = [*reader.begun, *(part for step in steps for part in step.calls)]
    return "".join(step.text for step in steps), calls_of(calls)


PLACES = st.lists(st.integers(0, 100), max_size=8)


@pytest.mark.parametrize(
    ("text", "calls"),
    [
        (ROME, FOUND),
        (f"\n {ROME}\n", FOUND),
        (f"```json\n{ROME}\n```", FOUND),
        (f"```\n{ROME}\n```\n", FOUND),
        (ROME.replace("arguments", "parameters"), FOUND),
        (f'{{"type": "function", "function": {ROME}}}', FOUND),
        (json.dumps({"name": "get_weather", "arguments": '{"city": "Rome"}'}), FOUND),
        ('{"arguments": {"city": "Rome"}, "name": "get_weather"}', FOUND),
        (f'{ROME}\n{{"name": "noop", "arguments": {{}}}}', [*FOUND, ("noop", "{}")]),
        (f"[{ROME}, {ROME}]", FOUND * 2),
    ],
)
def test_it_counts_in_any_pieces(text: str, calls: list[tuple[str, str]]) -> None:
    for size in (1, 3, 500):
        for form in (DEFAULT_FORM, NO_TAG):
            assert read(text, [*range(0, len(text), size)], form=form) == ("", calls)


@pytest.mark.parametrize(
    "text",
    [
        '{"name": "Bob", "age": 3}',
        '{"name": "get_weather"}',
        '{"name": "get_weather", "arguments": 5}',
        '{"name": "get_weather", "arguments": "Rome"}',
        '{"name": "get_weather", "arguments": {}, "why": "asked"}',
        f"{ROME} is the call.",
        f"The call: {ROME}",
        f"```json\n{ROME}",
        f"```python\n{ROME}\n```",
        ROME[:-1],
        f'[{ROME}, {{"name": "other", "arguments": {{}}}}]',
        "[]",
    ],
)
def test_what_is_something_else_stays_text(text: str) -> None:
    for size in (1, 3, 500):
        for form in (DEFAULT_FORM, NO_TAG):
            assert read(text, [*range(0, len(text), size)], form=form) == (text, [])


@given(PLACES)
def test_text_is_not_held_longer_than_it_may_be_one(places: list[int]) -> None:
    reader = ToolCallParser(DEFAULT_FORM, [WEATHER])
    assert "".join(reader.feed(piece).text for piece in cut('{"name": "Bob"', places)) != ""


OPENING = "<tool_call>"
HALF = '<tool_call>\n{"name": "get_wea'


@pytest.mark.parametrize("end", range(1, len(HALF)))
def test_half_an_opening_is_never_said(end: int) -> None:
    assert read(f"Well. {HALF[:end]}", [], cut_off=True) == ("Well.", []) or end == 0
    if end >= len(OPENING):  # the model itself ended there
        assert read(f"Well. {HALF[:end]}", [])[1] == []
        assert OPENING not in read(f"Well. {HALF[:end]}", [])[0]


def test_half_a_mark_is_text_where_the_model_ends_with_it() -> None:
    assert read("a <", []) == ("a <", [])


@given(PLACES)
def test_a_call_that_the_given_start_has_begun(places: list[int]) -> None:
    whole = f"{DEFAULT_FORM.before}get_weather{DEFAULT_FORM.between}{{}}{DEFAULT_FORM.after}"
    for at in range(len(whole)):
        assert read(whole[at:], places, f"Let me see. {whole[:at]}") == (
            "",
            [("get_weather", "{}")],
        )
    assert read(f"{whole[40:]}\nDone.", places, f"Well. {whole[:40]}")[1] != []
    assert read("Done.", places, f"{whole}\n") == ("Done.", [])
    assert read(" How are you? ", places, "Hello! ") == (" How are you? ", [])
    assert read("you?", places, "How are <") == ("you?", [])


LOOP = [f"{ROME}\n" * n + ROME[:end] for n in (1, 2, 40) for end in range(len(ROME))]
OSLO = ROME.replace("Rome", "Oslo")


@pytest.mark.parametrize("fence", ["", "```json\n", "```\n"])
@pytest.mark.parametrize("text", LOOP)
def test_of_an_answer_that_was_cut_off_whole_calls_count_once(text: str, fence: str) -> None:
    assert read(fence + text, [], cut_off=True) == ("", FOUND)


@pytest.mark.parametrize(
    "text",
    [
        ROME[:-3],
        f"{ROME} is a cal",
        f'{ROME} {{"name": "other", "arg',
        f'{ROME} {{"city": "Ro',
        f"{ROME} [1, 2",
    ],
)
def test_what_was_cut_off_in_something_else_stays_text(text: str) -> None:
    said, calls = read(text, [], cut_off=True)
    assert (said, calls) == (text, [])


def test_different_calls_that_were_cut_off_all_count() -> None:
    _, calls = read(f"{ROME} {OSLO} {ROME} {OSLO[:20]}", [], cut_off=True)
    assert [json.loads(arguments)["city"] for _, arguments in calls] == ["Rome", "Oslo"]


@pytest.mark.parametrize("fence", ["", "```json\n"])
@pytest.mark.parametrize("size", [1, 7, 1000])
@pytest.mark.parametrize(
    ("text", "cities"),
    [
        (f"{ROME}\n" * 40, ["Rome"]),
        (f"{ROME}\n{OSLO}\n" * 40, ["Rome", "Oslo"]),
        (f"{OSLO}{ROME}" + f" {ROME}" * 40, ["Oslo", "Rome"]),
        (f"{ROME}\n{ROME}\n{OSLO}", None),
        (f"{ROME}\n" * 2 + "[5]\n" + f"{ROME}\n" * 9, None),
    ],
)
def test_an_answer_that_goes_round_in_its_calls_is_over(
    text: str, fence: str, size: int, cities: list[str] | None
) -> None:
    """Before, it was held back until no tokens were left: the client saw nothing for minutes."""
    reader, read_so_far, calls = ToolCallParser(DEFAULT_FORM, [WEATHER]), 0, []
    for start in range(0, len(text), size):
        step = reader.feed((fence if start == 0 else "") + text[start : start + size])
        read_so_far += size
        calls += step.calls
        assert step.text == ""
        if reader.repeated:
            break
    assert reader.repeated == (cities is not None)
    assert cities is None or size == 1000 or read_so_far < 6 * len(ROME) + 2 * size
    assert [json.loads(given)["city"] for _, given in calls_of(calls)] == (cities or [])
    assert reader.end().calls == [] or cities is None
