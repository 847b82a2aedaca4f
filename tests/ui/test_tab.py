"""A new tab is one class with regions and commands; help topics are Markdown files."""

import asyncio

import gradio as gr
import pytest
from typing_extensions import override

from app.errors import UNEXPECTED, AppError
from tests.app import fake_engine
from tests.app.assisted import assisted
from tests.app.asynchronous import asynchronous
from ui import page
from ui.help_panel import FIRST, FOLDER, PANEL, SHORTCUTS, read_topics, topics
from ui.tab import Command, Tab, Values, View, Visitor
from ui.widgets import sentence


class CountingPage(View[Command]):
    def __init__(self) -> None:
        super().__init__({"add": self._add, "refuse": self._refuse, "break": self._break})
        self.count, self.message = 0, ""

    @override
    async def values(self) -> Values:
        return {"count": str(self.count), "message": self.message, "title": "Counting"}

    @override
    def fail(self, message: str) -> None:
        self.message = message

    async def _add(self, command: Command) -> None:
        self.count += int(command.name)

    async def _refuse(self, _: Command) -> None:
        raise AppError("the count is closed")

    async def _break(self, _: Command) -> None:
        raise ZeroDivisionError


class CountingTab(Tab):
    name = "Counting"
    regions = ("title", "count", "message")

    @override
    def view(self, visitor: Visitor) -> CountingPage:
        return CountingPage()


async def after(view: CountingPage, command: str, name: str = "") -> tuple[int, str]:
    await view.receive(Command(command=command, name=name))
    return view.count, view.message


@asynchronous
async def test_a_file_name_that_is_no_text_takes_no_region():
    """One name in another encoding, and the list of models never came."""
    view = CountingPage()
    view.fail("/models/M\udcfcller.gguf")
    assert (await anext(view.updates()))["message"] == "/models/M?ller.gguf"


@asynchronous
async def test_only_regions_that_changed_are_sent():
    view = CountingPage()
    updates = view.updates()
    assert await anext(updates) == {"count": "0", "message": "", "title": "Counting"}
    await after(view, "add", "2")
    assert await anext(updates) == {"count": "2"}
    following = asyncio.ensure_future(anext(updates))
    await asyncio.sleep(0)
    await after(view, "add", "3")
    await after(view, "add", "4")
    assert await following == {"count": "9"}


@asynchronous
async def test_errors_are_shown_in_place():
    view = CountingPage()
    assert await after(view, "refuse") == (0, "the count is closed")
    assert await after(view, "break") == (0, UNEXPECTED)
    assert await after(view, "fly") == (0, "this page cannot do 'fly'; reload it")
    assert await after(view, "add", "1") == (1, view.message)


@asynchronous
async def test_each_page_has_its_view_and_its_commands(tmp_path):
    async with assisted(tmp_path, fake_engine.parrot) as assistant:
        views: list[CountingPage] = []

        class Listed(CountingTab):
            @override
            def view(self, visitor: Visitor) -> CountingPage:
                views.append(CountingPage())
                return views[-1]

        tab = Listed(assistant)
        one, another = Visitor("one page"), Visitor("another")
        tab.post(one, '{"command": "add", "name": "2"}')
        tab.post(another, '{"command": "add", "name": "3"}')
        tab.post(another, '{"command": "add", "amount": 3}')
        tab.post(another, "no JSON")
        await asyncio.sleep(0.01)
        assert [view.count for view in views] == [2, 3]
        assert "reload the page" in views[1].message
        tab.close(one)
        tab.post(one, '{"command": "add", "name": "1"}')
        assert len(views) == 3
        tab.post(Visitor("another", "anna"), '{"command": "add", "name": "1"}')
        assert len(views) == 4  # a key that claims to be the page of somebody else


@asynchronous
async def test_one_line_adds_a_tab_to_the_page(tmp_path, monkeypatch):
    monkeypatch.setattr(page, "TABS", (*page.TABS, CountingTab))
    async with assisted(tmp_path, fake_engine.parrot) as assistant:
        blocks = page.build(assistant)
    ids = {getattr(block, "elem_id", None) for block in blocks.blocks.values()}
    assert {"counting", "counting-count", "chat", "wire"} <= ids
    assert isinstance(blocks, gr.Blocks)


def test_every_tabs_files_are_served():
    sheets = page.style_sheets()
    assert len(set(sheets)) == len(sheets)
    assert "hardware.css" in sheets
    assert "slipstream" in page.script()


# --- help -----------------------------------------------------------------------------------------


def test_a_topic_has_title_summary_and_links_of_the_panel(tmp_path):
    text = "# Two *words*\n\nA `first` line.\n\nMore: [b](b.md#part), [web](https://example.com).\n\n<b>raw</b>\n"
    (tmp_path / "a.md").write_text(text)
    (tmp_path / "without-heading.md").write_text("Only | text")
    second, first = sorted(read_topics(tmp_path), key=lambda one: one.key, reverse=True)
    assert (first.key, first.title, first.summary) == ("a", "Two *words*", "A first line.")
    assert '<a href="#" data-topic="b">' in first.html
    assert '<a href="https://example.com">' in first.html
    assert "&lt;b&gt;raw" in first.html
    assert "<h1>" not in first.html
    assert (second.title, second.summary) == ("Without heading", "Only | text")


def test_every_topic_is_in_the_panel_and_links_only_to_topics():
    found = read_topics()
    assert len(found) == len(list(FOLDER.glob("*.md")))
    links = {part.split('"')[0] for one in found for part in one.html.split('data-topic="')[1:]}
    assert links <= {one.key for one in found}
    assert all(one.title and one.summary for one in found)
    assert topics().count("<details") == len(found)
    assert tuple(one.key for one in found[: len(FIRST)]) == FIRST
    rest = [one.title for one in found[len(FIRST) :]]
    assert rest == sorted(rest)


def test_every_shortcut_is_in_the_panel():
    assert PANEL.count("<kbd>") >= len(SHORTCUTS)
    assert PANEL.count("data-keys=") == len(SHORTCUTS)


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("the port is taken", "The port is taken."),
        ("gpt-oss-20b needs 13.1 GiB", "gpt-oss-20b needs 13.1 GiB."),
        ("llama-cpp-python is not installed", "llama-cpp-python is not installed."),
        ("smollm2_q4: it is gone", "smollm2_q4: it is gone."),
        ("config.json is damaged", "config.json is damaged."),
        ("org/model is gated", "org/model is gated."),
        ("well-known words", "Well-known words."),
        ("really?", "Really?"),
        (" ", ""),
    ],
)
def test_a_sentence_begins_with_a_capital_unless_a_name_begins_it(said, shown):
    assert sentence(said) == shown
