"""A thought between a model's own marks is given between the usual tags, whatever the grouping of its tokens."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.request import Message
from app.text.detokenizer import Detokenizer
from app.text.reasoning.detokenizer import ReasoningDetokenizer
from app.text.reasoning.markers import AnswerMarks
from tests.app.text.parsing import cut, fed, parsed, rest, thought_and
from tests.app.text.reasoning.marked import (
    COHERE,
    CONTROL,
    GEMMA,
    MARKS,
    SEED,
    VOCABULARY,
    ids_of,
    text_of,
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


def decoded(template: str, ids: Sequence[int], places: Sequence[int] = ()) -> str:
    """The text of these tokens, fed in groups that end at ``places``."""
    stream = TEXTS[template].detokenizer()
    return "".join(fed(stream, piece) for piece in cut(ids, places)) + rest(stream)


def plain(ids: Sequence[int]) -> str:
    """As a model without thoughts is shown."""
    stream = Detokenizer(VOCABULARY.bytes)
    return stream.feed(ids) + stream.end()


class TestLaws:
    @given(templates, st.integers(0, 99), anything)
    def test_other_beginnings_stay_text(self, template: str, length: int, ids: list[int]) -> None:
        opening = ids_of(MARKS[template].opening.strip())
        ids = [*opening[: length % len(opening)], *ids_of("#"), *ids]
        assert decoded(template, ids) == plain(ids)

    @given(templates, st.lists(st.integers(0, len(CONTROL) + 40), max_size=12))
    def test_no_stand_in_is_ever_shown(self, template: str, ids: list[int]) -> None:
        ids = ids_of(MARKS[template].opening) + ids
        assert not any("\ud800" <= letter <= "\udfff" for letter in decoded(template, ids))

    @given(templates, space, words, space, words, st.lists(st.integers(0, 99), max_size=9))
    def test_thought_and_answer_come_back(
        self, template: str, before: str, thought: str, after: str, said: str, places: list[int]
    ) -> None:
        opening, closing = MARKS[template].opening, MARKS[template].closing
        text = f"{before}{opening}{before}{thought}{after}{closing}{after}{said}"
        found = decoded(template, ids_of(text), places)
        tagged = thought_and(thought.strip(), "") if thought.strip() else ""
        assert found == tagged + said.lstrip()
        whole = TEXTS[template].detokenizer()
        delta = parsed([*whole.feed(ids_of(text)), *whole.end()])
        assert (delta.reasoning, delta.text) == (thought.strip(), said.lstrip())


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
    assert decoded(template, ids_of(written)) == text


def test_a_thought_is_shown_as_it_comes() -> None:
    stream = TEXTS[GEMMA].detokenizer()
    assert fed(stream, ids_of("<|channel>thought\nHm")) == "<think>\nHm"
    assert fed(stream, ids_of(", 4")) == ", 4"
    assert fed(stream, ids_of("<channel|>")) == "\n</think>\n\n"
    assert fed(stream, ids_of("\nFi")) == "Fi"


@given(st.text("ab <>/", max_size=12), st.booleans())
def test_a_first_space_that_is_no_text(text: str, thinks: bool) -> None:
    """Of vocabularies that put one before the first word."""
    chat = sentencepiece()
    table, marks = sentencepiece_vocabulary().bytes, AnswerMarks("<a>", "</a>", ())
    ids = chat.encode_chat([Message("user", f"<a>b</a>{text}" if thinks else f"b{text}")])
    stream = ReasoningDetokenizer(marks, table)
    decoded = rest(stream, ids)
    assert decoded == (f"<think>\nb\n</think>\n\n{text.lstrip()}" if thinks else f"b{text}")
