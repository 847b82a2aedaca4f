"""Answers that repeat themselves, and texts that only look like it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.text.repetition import ENDED, never_ends, repeats

PARAGRAPH = (
    "Lighthouses are important for several reasons. They guide ships at night, they warn of rocks, "
    "and they tell sailors where they are.\n\n"
)
PROSE = (
    "The boat left the harbour at six in the morning. The sea was calm and the sky was clear. By noon "
    "it had reached the island, and the crew went ashore to look for water. They found a spring below "
    "the cliffs, filled eight barrels, and were back before dark. Nobody had missed them but the cook, "
    "who had kept the soup warm, and a gull that had waited on the rail for what the cook threw away."
)


@given(
    st.text(max_size=200),
    st.text(st.characters(exclude_categories=["C", "Z"]), min_size=1, max_size=200),
    st.integers(min_value=0, max_value=199),
)
def test_law_a_passage_that_is_said_often_enough_is_seen(before, passage, cut):
    length, times = ENDED
    text = before + passage * (times + 1 + length // len(passage)) + passage[: cut % len(passage)]
    assert repeats(text)
    assert never_ends(text)


@given(st.lists(st.integers(), unique=True, max_size=300))
def test_law_a_text_whose_words_differ_does_not_repeat_itself(numbers):
    assert not repeats(" ".join(f"word{number}" for number in numbers))


@pytest.mark.parametrize(
    "text",
    [
        PARAGRAPH * 4,
        "A lighthouse is a tower. " + PARAGRAPH * 3 + PARAGRAPH[:50],
        "\n".join(f"{number}. Be honest with yourself and with others." for number in range(1, 40)),
        "ha " * 200,
        "0, " * 200,
    ],
)
def test_what_repeats(text):
    assert repeats(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Yes.",
        " " * 1000,
        PROSE,
        PROSE + "\n\n" + PROSE,  # a text and its copy
        "La la la la.\n" * 3,
        "\n".join(f"| {number} | {number * number} |" for number in range(100)),
        "\n".join(f"7 x {number} = {7 * number}" for number in range(100)),
    ],
)
def test_what_does_not(text):
    assert not repeats(text)


@pytest.mark.parametrize(
    ("asked", "wanted"),
    [
        (f"Repeat this text exactly: {PARAGRAPH * 20}", True),
        (f"Write this 40 times:\n{PARAGRAPH}", True),
        ("What are lighthouses for?", False),
        ("", False),
    ],
)
def test_what_the_question_wants_is_no_fault(asked, wanted):
    assert repeats(PARAGRAPH * 20, asked) != wanted
    assert never_ends(PARAGRAPH * 20, asked) != wanted


def test_an_answer_is_told_of_before_it_is_ended():
    often = next(times for times in range(1, 50) if repeats(PARAGRAPH * times))
    ended = next(times for times in range(1, 50) if never_ends(PARAGRAPH * times))
    assert often < ended < 15
    assert not never_ends("La la la la.\n" * 60)
