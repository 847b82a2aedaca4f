"""Answers are read the same whatever pieces they come in."""

import json

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from app.request import Tool
from app.text.tools.call_format import DEFAULT_FORM, CallForm, PairForm
from app.text.tools.call_parser import ToolCallParser
from tests.app.text.parsing import calls_of, cut
from tests.app.text.tools.templates import CODER_FORM, GLM_FORM

BARE = CallForm('{"name": "', '", "parameters": ', "}")
LISTED = CallForm('[TOOL_CALLS] [{"name": "', '", "arguments": ', "}]")
NAME_FIRST = CallForm("[TOOL_CALLS]", "[ARGS]", "", "")
FORMS = (DEFAULT_FORM, BARE, LISTED, NAME_FIRST)
CLOSE = CallForm("<call>", "", "</call>", "", PairForm("<k>", "</k><v>", "</v>"))
PAIRED = (CODER_FORM, GLM_FORM, CLOSE)
TOOLS = [
    Tool("add"),
    Tool("add_up"),
    Tool(
        "look_up",
        parameters={
            "type": "object",
            "properties": {
                "text": {"type": "string"},
                "number": {"type": "number"},
                "flag": {"type": ["boolean", "null"]},
                "any": {},
                "either": {"anyOf": [{"type": "string"}, {"type": "integer"}]},
                "many": {"$ref": "#/$defs/many"},
            },
            "$defs": {"many": {"type": "array", "items": {"type": "integer"}}},
        },
    ),
]

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
    reader = ToolCallParser(form, TOOLS)
    said, parts = "", []
    for piece in pieces:
        parsed = reader.feed(piece)
        said += parsed.text
        parts += parsed.calls
    assert all(part.id.startswith("call_") for part in parts if part.name)
    end = reader.end()
    return said + end.text, calls_of([*parts, *end.calls])


def until_repeated(form: CallForm, calls: list[tuple[str, dict]], size: int, *, once: bool) -> list:
    """The calls that are reported, letters coming ``size`` by ``size``, up to where the answer is over."""
    reader, parts = ToolCallParser(form, TOOLS, once=once), []
    text = (form.separator or "").join(written(form, *call) for call in calls)
    for start in range(0, len(text), size):
        parts += reader.feed(text[start : start + size]).calls
        if reader.repeated:
            break
    found = calls_of([*parts, *reader.end().calls])
    assert {part.index for part in parts} == set(range(len(found)))
    return [(name, json.loads(given_arguments)) for name, given_arguments in found]


ROME, ROMEO, ADD = ("look_up", {"text": "Rome"}), ("look_up", {"text": "Romeo"}), ("add", {})


@pytest.mark.parametrize("form", [DEFAULT_FORM, NAME_FIRST])
@pytest.mark.parametrize("size", [1, 7, 1000])
@pytest.mark.parametrize(
    ("calls", "many"),
    [
        ([ROME] * 16, 1),
        ([ROME, ROMEO] * 8, 2),
        ([ROMEO, ROME, ADD, ROME, ADD], 3),
        ([ADD, ADD, ROME], 1),
        ([ROME, ROMEO, ADD, ("add_up", {})], 4),
        ([ADD, ("add", {"a": 1}), ("add", {"a": 12}), ("add", {"a": 1})], 3),
    ],
)
def test_a_repeated_call_ends_an_answer_that_may_say_nothing_else(form, size, calls, many) -> None:
    assert until_repeated(form, calls, size, once=True) == calls[:many]
    assert until_repeated(form, calls, size, once=False) == calls


@given(
    st.lists(st.tuples(st.sampled_from(["add", "add_up"]), arguments), max_size=5),
    st.integers(1, 9),
)
def test_law_different_calls_are_all_reported(calls: list, size: int) -> None:
    different = [call for n, call in enumerate(calls) if call not in calls[:n]]
    assume(len({json.dumps(call) for call in different}) == len(different))
    assert until_repeated(DEFAULT_FORM, different, size, once=True) == different


def test_half_a_call_that_repeats_one_is_not_reported() -> None:
    text = written(DEFAULT_FORM, *ROME) + "\n" + written(DEFAULT_FORM, *ROME)[:-25]
    reader = ToolCallParser(DEFAULT_FORM, TOOLS, once=True)
    assert calls_of([*reader.feed(text).calls, *reader.end(cut=True).calls]) == [
        ("look_up", '{"text": "Rome"}')
    ]


@given(st.sampled_from(FORMS), arguments, st.lists(st.integers(0, 400), max_size=12))
def test_a_call_in_any_pieces(form: CallForm, wanted: dict, places: list[int]) -> None:
    text = written(form, "add", wanted)
    assert read(form, cut(text, places)) == ("", [("add", json.dumps(wanted))])


@given(
    st.sampled_from((DEFAULT_FORM, NAME_FIRST)), st.lists(arguments, max_size=3), st.integers(1, 9)
)
def test_text_and_several_calls_letter_by_letter(form: CallForm, wanted: list, size: int) -> None:
    calls = (form.separator or "").join(written(form, "look_up", one) for one in wanted)
    text = f"I look: <tool\n{calls}"
    pieces = [text[at : at + size] for at in range(0, len(text), size)]
    said = "I look: <tool" if wanted else "I look: <tool\n"
    assert read(form, pieces) == (said, [("look_up", json.dumps(one)) for one in wanted])


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
    text = written(DEFAULT_FORM, "add", {"a": "long text"})[: -len(' text"}}\n</tool_call>')]
    assert read(DEFAULT_FORM, list(text)) == ("", [("add", '{"a": "long')])


def test_text_arrives_at_once_where_no_call_begins() -> None:
    reader = ToolCallParser(DEFAULT_FORM, TOOLS)
    assert [reader.feed(piece).text for piece in ("Hello ", "you <", "b> and <tool_", "x")] == [
        "Hello", " you", " <b> and", " <tool_x",
    ]  # fmt: skip


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=30) | st.sampled_from(
    ["", "true", "12", '"', "\\", "</v", "<", "a\n\nb", "\n", "</parameter>", "[1]"]
)
pairs = st.fixed_dictionaries(
    {},
    optional={
        "text": texts,
        "number": st.integers() | st.floats(allow_nan=False, allow_infinity=False),
        "flag": st.booleans() | st.none(),
        "either": st.integers(),
        "many": st.lists(st.integers(), max_size=3),
        "more": st.dictionaries(st.text("ab"), st.integers(), max_size=2),
    },
)


def in_pairs(form: CallForm, name: str, wanted: dict) -> str:
    assert form.pair is not None
    inside = (
        form.pair.before
        + key
        + form.pair.between
        + (value if isinstance(value, str) else json.dumps(value))
        + form.pair.after
        for key, value in wanted.items()
    )
    return f"{form.before}{name}{form.between}{''.join(inside)}{form.after}"


@given(
    st.sampled_from(PAIRED), st.lists(pairs, min_size=1, max_size=3), st.lists(st.integers(0, 900))
)
def test_calls_in_pairs_in_any_pieces(
    form: CallForm, wanted: list[dict], places: list[int]
) -> None:
    assume(all(form.pair.after not in one.get("text", "") + form.pair.after[:-1] for one in wanted))
    text = "So: " + form.separator.join(in_pairs(form, "look_up", one) for one in wanted)
    said, calls = read(form, cut(text, places))
    assert said == "So:"
    assert [(name, json.loads(arguments)) for name, arguments in calls] == [
        ("look_up", one) for one in wanted
    ]


@pytest.mark.parametrize(
    ("key", "written", "meant"),
    [
        ("text", "12", "12"),
        ("text", "True", "True"),
        ("number", "1e3", 1000.0),
        ("number", "many", "many"),
        ("number", "NaN", "NaN"),
        ("flag", "True", True),
        ("flag", "null", None),
        ("flag", "1", "1"),
        ("either", "12", 12),
        ("either", "1.5", "1.5"),
        ("either", '"12"', '"12"'),
        ("any", "[1, {}]", [1, {}]),
        ("any", "a b", "a b"),
        ("many", "[1", "[1"),
        ("other", "False", False),
    ],
)
def test_what_a_value_means(key: str, written: str, meant: object) -> None:
    pair = f"<parameter={key}>\n{written}\n</parameter>\n"
    text = f"{CODER_FORM.before}look_up{CODER_FORM.between}{pair}{CODER_FORM.after}"
    ((_, arguments),) = read(CODER_FORM, [text])[1]
    assert json.loads(arguments) == {key: meant}
    assert type(json.loads(arguments)[key]) is type(meant)


def test_a_text_goes_on_as_it_comes() -> None:
    reader = ToolCallParser(CODER_FORM, TOOLS)
    reader.feed("<tool_call>\n<function=look_up>\n<parameter=text>\n")
    fed = [reader.feed(piece).calls for piece in ('say "', 'hi"\n</', "b\n</parameter>\n</fun")]
    assert [[part.arguments for part in calls] for calls in fed] == [
        ['say \\"'], ['hi\\"'], ['\\n</b"}'],
    ]  # fmt: skip


@pytest.mark.parametrize("missing", range(1, 60))
def test_a_call_in_pairs_that_was_cut_short_says_nothing_else(missing: int) -> None:
    text = in_pairs(CODER_FORM, "look_up", {"number": 12, "text": "a long text"})
    said, calls = read(CODER_FORM, list(text[:-missing]))
    assert said == ""
    assert [name for name, _ in calls] == ["look_up"]


def test_what_is_no_pair_ends_the_arguments() -> None:
    text = f"{CODER_FORM.before}add{CODER_FORM.between}just text"
    assert read(CODER_FORM, [text]) == ("just text", [("add", "{}")])
