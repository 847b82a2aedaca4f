"""What the message list shows: texts as they are, figures, sentences."""

from html import unescape
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from app.turn import Report
from engine.request import DrafterRun, FinishReason, Stats
from ui import transcript


def report(reason: FinishReason = FinishReason.STOP, **changed: Any) -> Report:
    stats = {
        "drafter": "lookup",
        "why": "the prompt repeats itself",
        "prompt_tokens": 10,
        "cached_tokens": 0,
        "emitted": 1500,
        "passes": 400,
        "drafted": 2000,
        "accepted": 1100,
        "depths": (),
        "prompt_seconds": 0.1,
        "decode_seconds": 5.0,
    }
    error = changed.pop("error", None)
    text = changed.pop("text", "Hello.")
    return Report(text, (), reason, Stats(**(stats | changed)), error)


def html(row: transcript.Row) -> str:
    return row["content"][0]["value"]


@given(st.text())
def test_law_what_is_said_is_shown_as_it_is(text: str) -> None:
    shown = html(transcript.said(text)).removeprefix('<div class="said">').removesuffix("</div>")
    assert unescape(shown) == text
    assert "<" not in shown


@given(st.text())
def test_law_title_is_one_short_line(text: str) -> None:
    made = transcript.title(text)
    assert len(made) <= 60
    assert len(made.splitlines()) <= 1


def test_caption_has_what_ran_why_and_the_figures() -> None:
    shown = transcript.caption(report())
    for part in ("Lookup", "300 tokens/s", "1,100 of 2,000 drafted", "3.8 tokens per pass"):
        assert part in shown
    assert "The prompt repeats itself." in shown


def test_caption_of_plain_decoding_speaks_of_no_drafts() -> None:
    shown = transcript.caption(report(drafter="none", drafted=0, accepted=0))
    assert "Plain" in shown
    assert "drafted" not in shown


def test_caption_says_who_stopped_the_answer() -> None:
    assert "Stopped by you." in transcript.caption(report(FinishReason.CANCELLED))
    assert "after 1,500 tokens." in transcript.caption(report(FinishReason.LENGTH))


def test_caption_of_a_broken_answer_has_the_sentence_and_escapes_it() -> None:
    shown = transcript.caption(report(FinishReason.ERROR, error="the <engine> ended"))
    assert "The &lt;engine&gt; ended." in shown


def test_answer_without_text_shows_its_caption_only() -> None:
    assert len(transcript.answered(report(text=" "), plain=True)) == 1
    assert len(transcript.answered(report(), plain=True)) == 2


def test_rows_before_an_answer_end_with_the_question() -> None:
    rows = [transcript.said("a"), *transcript.answered(report(), plain=True), transcript.said("b")]
    assert transcript.before_answer([*rows, *transcript.answered(report(), plain=True)]) == rows
    assert transcript.before_answer([]) == []


@given(st.text(min_size=1).filter(str.strip))
def test_law_answer_is_copied_as_it_was_written(text: str) -> None:
    _, caption = transcript.answered(report(text=text), plain=True)
    copied = html(caption).split('data-copy="')[1].split('"')[0]
    assert unescape(copied) == text


@given(st.text())
def test_law_plain_answer_is_shown_as_it_is(text: str) -> None:
    shown = html(transcript.answer(text, plain=True))
    assert unescape(shown.removeprefix('<div class="plain">').removesuffix("</div>")) == text


def test_answer_in_markdown_is_left_to_gradio() -> None:
    row = transcript.answer("**a** < b", plain=False)
    assert row["content"] == [{"type": "text", "text": "**a** < b"}]


def test_under_auto_the_figures_name_the_drafter_that_brought_most() -> None:
    runs = tuple(
        DrafterRun(name, 1, n, 0, 0, 0.1, 0.1, ()) for name, n in (("suffix", 9), ("none", 1))
    )
    assert "<b>Auto: suffix lookup</b>" in transcript.caption(report(drafter="auto", runs=runs))
    assert "<b>Auto</b>" in transcript.caption(report(drafter="auto"))
