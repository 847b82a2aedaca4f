"""What the page does when someone writes, stops or asks again; handlers are plain generators."""

import asyncio
from collections.abc import AsyncGenerator, Iterator
from pathlib import Path
from typing import Any

import gradio as gr
import pytest

from app.history.store import History
from tests.app.api.fake_assistant import BUG, CRASH, FOREVER, FakeAssistant
from ui.chat import lay_out
from ui.talk import Panel, Talk, View
from ui.transcript import Row

Rows = list[Row]


class Page:
    """What a browser would show: views are applied as they come."""

    def __init__(self, assistant: FakeAssistant) -> None:
        self.assistant = assistant
        with gr.Blocks(analytics_enabled=False):
            self.panel = lay_out(assistant, gr.Button())
        self.talk = Talk(assistant, self.panel)
        self.rows: Rows = []
        self.notice, self.box, self.conversation = "", "", None
        self.busy = False
        self.frames = 0

    def show(self, view: View) -> None:
        panel: Panel = self.panel
        self.rows = view.get(panel.rows, self.rows)
        self.notice = view.get(panel.notice, self.notice)
        self.conversation = view.get(panel.conversation, self.conversation)
        box = view.get(panel.box, {})
        self.box = box.get("value", self.box)
        self.busy = bool(box.get("stop_btn", self.busy))
        self.frames += panel.rows in view

    def send(self, text: str) -> AsyncGenerator[View]:
        self.box = text
        return self.talk.send(text, self.rows, self.conversation, "auto", 0)

    def follow(self, views: AsyncGenerator[View], press: tuple[str, int] | None = None) -> None:
        """Show every view; Stop or New chat is pressed at some frame."""

        async def show_all() -> None:
            async for view in views:
                self.show(view)
                if press == ("stop", self.frames):
                    self.talk.stop(self.conversation)
                if press == ("fresh", self.frames):
                    assert self.talk.fresh(self.conversation) == gr.skip()

        asyncio.run(show_all())

    @property
    def texts(self) -> list[str]:
        return [part.get("text") or part["value"] for row in self.rows for part in row["content"]]


@pytest.fixture
def page(tmp_path: Path) -> Iterator[Page]:
    history = History.open(tmp_path / "history.db")

    async def open_page() -> Page:  # outside a loop Gradio would start one and not close it
        return Page(FakeAssistant(history))

    yield asyncio.run(open_page())
    history.close()


def test_answer_has_its_caption_and_the_input_is_free_again(page: Page) -> None:
    page.follow(page.send("a b c"))
    said, answer, caption = page.texts
    assert "a b c" in said
    assert answer == '<div class="plain">a b c </div>'
    assert "tokens/s" in caption
    assert (page.box, page.busy, page.notice) == ("", False, "")


def test_every_answer_keeps_its_own_caption(page: Page) -> None:
    page.follow(page.send("a b"))
    page.follow(page.send("a b c d e f"))
    captions = [text for text in page.texts if "figures" in text]
    assert "1 of 2" in captions[0]
    assert "3 of 6" in captions[1]


def test_chat_is_kept_in_history_under_its_first_words(page: Page) -> None:
    page.follow(page.send("a  b\nc"))
    first = page.conversation
    page.follow(page.send("d"))
    assert page.conversation == first
    [kept] = page.assistant.history.conversations()
    assert (kept.id, kept.title) == (first, "a b c")


@pytest.mark.parametrize("text", ["", " \n"])
def test_nothing_written_is_one_sentence_and_changes_nothing(page: Page, text: str) -> None:
    page.follow(page.send("a b"))
    before = page.rows
    page.follow(page.send(text))
    assert "Write something first." in page.notice
    assert page.rows == before


@pytest.mark.parametrize(
    ("text", "told"), [("w " * 1100, "1100 tokens"), (BUG, "Something unexpected")]
)
def test_what_cannot_be_answered_goes_back_into_the_input(
    page: Page, text: str, told: str, caplog: pytest.LogCaptureFixture
) -> None:
    page.follow(page.send(text))
    assert told in page.notice
    assert "secrets" not in page.notice
    assert (page.rows, page.box, page.busy) == ([], text, False)
    assert page.conversation is None
    assert not page.assistant.history.conversations()
    assert ("secrets" in caplog.text) == (text == BUG)
    page.follow(page.send("a b"))
    assert page.notice == ""


def test_broken_answer_keeps_its_text_and_says_why(page: Page) -> None:
    page.follow(page.send(CRASH))
    assert page.texts[1] == '<div class="plain">crash now </div>'
    assert "The engine&#x27;s process ended by itself" in page.texts[2]
    assert not page.busy


def test_stop_keeps_what_was_written(page: Page) -> None:
    page.follow(page.send(FOREVER), press=("stop", 4))
    assert "on on" in page.texts[1]
    assert "Stopped by you." in page.texts[2]


def test_regenerate_replaces_the_last_answer_only(page: Page) -> None:
    page.follow(page.send("a b"))
    first = list(page.rows)
    page.follow(page.send("c d"))
    page.follow(page.talk.regenerate(page.rows, page.conversation, "auto", 0))
    assert page.rows[: len(first)] == first
    assert [row["role"] for row in page.rows] == ["user", "assistant", "assistant"] * 2


def test_new_chat_is_empty(page: Page) -> None:
    page.follow(page.send("a b"))
    page.show(page.talk.fresh(page.conversation))
    assert (page.rows, page.conversation) == ([], None)


def test_new_chat_while_an_answer_runs_is_shown_by_the_answer_itself(page: Page) -> None:
    """A view of another handler was overtaken by a late frame, and the old chat came back."""
    page.follow(page.send(FOREVER), press=("fresh", 4))
    assert (page.rows, page.conversation, page.busy) == ([], None, False)
    page.follow(page.send("a b"))
    assert "tokens/s" in page.texts[2]


def test_answer_without_an_end_leaves_half_of_the_context(page: Page) -> None:
    page.assistant.pause = 0
    page.follow(page.send(FOREVER))
    assert "Cut off after 500 tokens." in page.texts[2]


def test_page_is_not_redrawn_for_every_pass(page: Page) -> None:
    page.assistant.pause = 0.001
    page.follow(page.send("w " * 50))
    assert page.frames < 15


def test_only_drafters_that_run_are_offered(page: Page) -> None:
    choices: Any = page.panel.mode.choices
    assert [value for _, value in choices] == ["auto", "none", "lookup"]
