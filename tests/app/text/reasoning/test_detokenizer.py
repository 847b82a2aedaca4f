"""A thought between a model's own marks is told between the usual tags, whatever the grouping of its tokens."""

from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.request import Message
from app.text.detokenizer import Detokenizer
from app.text.reasoning.detokenizer import ReasoningDetokenizer
from app.text.reasoning.markers import AnswerMarks
from tests.app.text.parsing import fed, parsed, rest
from tests.app.text.reasoning.marked import (
    COHERE,
    CONTROL,
    GEMMA,
    MARKS,
    SEED,
    VOCABULARY,
    ids_of,
    text_of,
    typed,
)
from tests.app.text.test_chat_text import sentencepiece, sentencepiece_vocabulary

TEXTS = {template: text_of(template) for template in MARKS}

templates = st.sampled_from([*MARKS])
space = st.text(" \n", max_size=3)
words = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="<>[]"), max_size=12)
pieces = st.sampled_from(
    [*CONTROL, "thought", "\n", " ", "<seed:", "think>", "</seed:think>", "<seed:think>", "é☃"]
)
anything = st.lists(pieces | words, max_size=12).map(
    lambda parts: [token for part in parts for token in ids_of(part)]
)


def told(template: str, ids: Sequence[int], places: Sequence[int] = ()) -> str:
    """The text of these tokens, fed in groups that end at ``places``."""
    stream = TEXTS[template].detokenizer()
    edges = sorted({0, len(ids), *(place % (len(ids) + 1) for place in places)})
    return "".join(fed(stream, ids[a:b]) for a, b in pairwise(edges)) + rest(stream)


def plain(ids: Sequence[int]) -> str:
    """As a model without thoughts is shown."""
    stream = Detokenizer(VOCABULARY.bytes)
    return stream.feed(ids) + stream.end()


class TestLaws:
    @given(templates, anything, st.booleans(), st.lists(st.integers(0, 99), max_size=20))
    def test_any_grouping_of_any_tokens_gives_the_same(
        self, template: str, ids: list[int], thinks: bool, places: list[int]
    ) -> None:
        ids = ids_of(MARKS[template].opening) * thinks + ids
        assert told(template, ids, places) == told(template, ids) == told(template, ids, range(99))

    @given(templates, st.integers(0, 99), anything)
    def test_what_does_not_begin_with_the_opening_is_shown_as_it_is(
        self, template: str, length: int, ids: list[int]
    ) -> None:
        opening = ids_of(MARKS[template].opening.strip())
        ids = [*opening[: length % len(opening)], *ids_of("#"), *ids]
        assert told(template, ids) == plain(ids)

    @given(templates, st.lists(st.integers(0, len(CONTROL) + 40), max_size=12))
    def test_no_stand_in_is_ever_shown(self, template: str, ids: list[int]) -> None:
        ids = ids_of(MARKS[template].opening) + ids
        assert not any("\ud800" <= letter <= "\udfff" for letter in told(template, ids))

    @given(templates, space, words, space, words, st.lists(st.integers(0, 99), max_size=9))
    def test_thought_and_answer_are_what_is_heard(
        self, template: str, before: str, thought: str, behind: str, said: str, places: list[int]
    ) -> None:
        opening, closing = MARKS[template].opening, MARKS[template].closing
        text = f"{before}{opening}{before}{thought}{behind}{closing}{behind}{said}"
        found = told(template, ids_of(text), places)
        tagged = f"<think>\n{thought.strip()}\n</think>\n\n" if thought.strip() else ""
        assert found == tagged + said.lstrip()
        whole = TEXTS[template].detokenizer()
        delta = parsed([*whole.feed(ids_of(text)), *whole.end()])
        assert (delta.reasoning, delta.text) == (thought.strip(), said.lstrip())

    @given(st.sampled_from([GEMMA, COHERE]), words.filter(str.strip), words)
    def test_marks_of_control_tokens_that_are_spelt_out_stay_text(
        self, template: str, thought: str, said: str
    ) -> None:
        opening, closing = MARKS[template].opening, MARKS[template].closing
        text = f"{opening}{thought}{closing}{said}"
        assert told(template, typed(text)) == text
        inside = ids_of(opening) + typed(text) + ids_of(closing)
        assert told(template, inside) == f"<think>\n{text.strip()}\n</think>\n\n"

    @given(templates, words.filter(str.strip), words, words, st.booleans())
    def test_an_answer_goes_on_where_it_was_broken_off(
        self, template: str, one: str, other: str, said: str, opened: bool
    ) -> None:
        closing = ids_of(MARKS[template].closing)
        after = [*ids_of(other), *closing, *ids_of(said)]
        begun = "<think>\n" if opened else f"<think>\n{one}"
        thought = other.strip() if opened else one + other.rstrip()
        stream = TEXTS[template].detokenizer("" if opened else begun, begun if opened else "")
        whole = f"<think>\n{thought}\n</think>\n\n{said.lstrip()}"
        assert begun + rest(stream, after) == whole
        behind = TEXTS[template].detokenizer(whole)
        text = other if said.strip() else other.lstrip()
        assert rest(behind, ids_of(other)) == text


@pytest.mark.parametrize(
    ("template", "written", "text"),
    [
        (GEMMA, "", ""),
        (GEMMA, "Five.", "Five."),
        (GEMMA, " \n", " \n"),
        (GEMMA, "<|channel>thought\nHm.\n<channel|>Five.", "<think>\nHm.\n</think>\n\nFive."),
        (GEMMA, "<|channel>thought\n<channel|>Five.", "Five."),
        (GEMMA, "<|channel>", ""),
        (GEMMA, "<|channel>though", "though"),
        (GEMMA, "<|channel>thought\n", ""),
        (GEMMA, "<|channel>though, no", "though, no"),
        (GEMMA, "<|channel>thought\nLet me ", "<think>\nLet me "),
        (GEMMA, "<|channel>thought\na<|channel>b<|turn>c<channel|>d<channel|>e",
         "<think>\nabc\n</think>\n\nde"),
        (COHERE, "<|START_THINKING|>Hm.<|END_THINKING|><|START_TEXT|>Five.<|END_TEXT|>",
         "<think>\nHm.\n</think>\n\nFive."),
        (SEED, "<seed:think>Hm.</seed:think>\nFive.", "<think>\nHm.\n</think>\n\nFive."),
        (SEED, "<seed:think>a</seed:b</seed:think>", "<think>\na</seed:b\n</think>\n\n"),
        (SEED, "<seed:think>a </seed:th", "<think>\na </seed:th"),
        (SEED, "<seed:th", "<seed:th"),
        (SEED, "So <seed:think>a</seed:think>", "So <seed:think>a</seed:think>"),
    ],
)  # fmt: skip
def test_what_becomes_of_marks(template: str, written: str, text: str) -> None:
    assert told(template, ids_of(written)) == text


def test_a_thought_is_shown_as_it_comes() -> None:
    stream = TEXTS[GEMMA].detokenizer()
    assert fed(stream, ids_of("<|channel>thought\nHm")) == "<think>\nHm"
    assert fed(stream, ids_of(", 4")) == ", 4"
    assert fed(stream, ids_of("<channel|>")) == "\n</think>\n\n"
    assert fed(stream, ids_of("\nFi")) == "Fi"


def test_half_a_character_stays_one() -> None:
    half = ids_of("☃")[:1]
    assert (
        told(GEMMA, ids_of("<|channel>thought\na") + half) == "<think>\na\N{REPLACEMENT CHARACTER}"
    )
    ids = ids_of("<|channel>thought\na") + half + ids_of("<channel|>b")
    assert told(GEMMA, ids) == "<think>\na\N{REPLACEMENT CHARACTER}\n</think>\n\nb"


@given(st.text("ab <>/", max_size=12), st.booleans())
def test_a_first_space_that_is_no_text(text: str, thinks: bool) -> None:
    """Of vocabularies that put one before the first word."""
    chat = sentencepiece()
    table, marks = sentencepiece_vocabulary().bytes, AnswerMarks("<a>", "</a>", ())
    ids = chat.encode_chat([Message("user", f"<a>b</a>{text}" if thinks else f"b{text}")])
    stream = ReasoningDetokenizer(marks, table)
    told = rest(stream, ids)
    assert told == (f"<think>\nb\n</think>\n\n{text.lstrip()}" if thinks else f"b{text}")
