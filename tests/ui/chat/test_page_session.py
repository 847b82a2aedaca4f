"""What a page does with its commands: sessions over an assistant whose engine is a fake."""

import asyncio
import base64

import pytest

from app.chat.attachments import Attachment
from app.chat.prefetch import ExpectedQuestion
from engine.errors import InvalidRequest
from tests.app import fake_engine
from tests.app.assisted import assisted
from tests.app.asynchronous import asynchronous
from tests.ui.paged import Page, opened
from ui.chat.actions import ACTIONS
from ui.chat.command import ChatCommand
from ui.chat.page_session import TABS, Pages


def used(page: Page) -> int:
    return int(page.regions["meter"].split('aria-valuenow="')[1].split('"')[0])


@asynchronous
async def test_first_message_begins_a_conversation_under_its_first_words(tmp_path):
    async with opened(tmp_path) as (page, _, assistant):
        await page.until(lambda: "What can I do" in page.regions["welcome"])
        page.do("send", text="a  b\nc")
        await page.answered(1)
        assert page.regions["welcome"] == ""
        assert page.state["title"] == "a b c"
        assert "a b c" in page.regions["side"]
        assert [one.title for one in assistant.history.conversations()] == ["a b c"]


@pytest.mark.parametrize(("text", "told"), [(" ", "Write something"), ("w " * 400, "256")])
@asynchronous
async def test_what_cannot_be_answered_goes_back_into_the_input(text, told, tmp_path):
    async with opened(tmp_path) as (page, _, assistant):
        page.do("send", text=text)
        await page.until(lambda: told in page.regions["notice"])
        assert page.state["once"] == {"box": text}
        assert page.state["conversation"] == ""
        assert assistant.history.conversations() == []


@asynchronous
async def test_another_conversation_can_be_opened_while_an_answer_runs(tmp_path):
    async with opened(tmp_path, fake_engine.endless) as (page, _, assistant):
        page.do("send", text="count")
        await page.until(lambda: page.state["tokens"] > 3)
        chat = page.state["conversation"]
        page.do("new")
        await page.until(lambda: "What can I do" in page.regions["welcome"])
        await asyncio.sleep(0.2)
        assert page.regions["rows"] == []
        assert assistant.running(chat) is not None
        page.do("open", id=chat)
        await page.until(lambda: page.state["busy"])


@asynchronous
async def test_what_one_page_changes_is_seen_on_the_other(tmp_path):
    async with opened(tmp_path) as (page, another, _):
        other = another()
        await other.until(lambda: other.state["ready"])
        page.do("send", text="hello")
        await page.answered(1)
        await other.until(lambda: "hello" in other.regions["side"])
        chat = page.state["conversation"]
        other.do("rename", id=chat, text="Greetings")
        await page.until(lambda: page.state["title"] == "Greetings")
        other.do("pin", id=chat)
        await page.until(lambda: "Pinned" in page.regions["side"])
        other.do("delete", id=chat)
        await page.until(lambda: page.state["conversation"] == "")


@asynchronous
async def test_attached_files_are_counted_and_go_with_the_message(tmp_path):
    async with opened(tmp_path) as (page, _, assistant):
        data = base64.b64encode(b"some words of a file").decode()
        for name in ("a.txt", "b.txt"):
            page.do("attach", name=name, data=data)
        await page.until(lambda: page.regions["chips"].count("tokens") == 2)
        page.do("detach", id="1")
        page.do("send", text="what is it?")
        await page.answered(1)
        assert page.regions["chips"] == ""
        [asked, _] = assistant.history.messages(page.state["conversation"])
        assert "some words of a file" in asked.content
        assert "b.txt" not in asked.content


@asynchronous
async def test_of_several_files_each_that_is_refused_is_told(tmp_path):
    async with opened(tmp_path) as (page, _, _):
        files = {"a.bin": b"a\0b", "b.pdf": b"%PDF-1.7", "c.txt": b"words", "d.txt": b"more words"}
        sent = {name: base64.b64encode(data).decode() for name, data in files.items()}
        for name in ("a.bin", "b.pdf", "c.txt"):
            page.do("attach", name=name, data=sent[name], more=name != "a.bin")
        await page.until(lambda: "c.txt" in page.regions["chips"])
        assert [name in page.regions["notice"] for name in sent] == [True, True, False, False]
        page.do("attach", name="d.txt", data=sent["d.txt"])
        await page.until(lambda: "d.txt" in page.regions["chips"])
        assert page.regions["notice"] == ""


@asynchronous
async def test_attached_files_of_a_tab_are_there_again(tmp_path):
    data = base64.b64encode(b"some words of a file").decode()
    async with opened(tmp_path) as (page, another, _):
        page.do("hello", name="this tab")
        page.do("attach", name="a.txt", data=data)
        await page.until(lambda: "a.txt" in page.regions["chips"])
        again, other = another(), another()
        again.do("hello", name="this tab")
        await again.until(lambda: "a.txt" in again.regions["chips"])
        other.do("hello", name="another tab")
        other.do("attach", name="b.txt", data=data)
        await other.until(lambda: "b.txt" in other.regions["chips"])
        assert "a.txt" not in other.regions["chips"]
        again.do("send", text="what is it?")
        await again.answered(1)
        third = another()
        third.do("hello", name="this tab")
        third.do("attach", name="c.txt", data=data)
        await third.until(lambda: "c.txt" in third.regions["chips"])
        assert "a.txt" not in third.regions["chips"]


def test_only_so_many_tabs_have_files(tmp_path):
    """The last ones to attach some; and a page that names no tab keeps none."""

    async def kept() -> list[int]:
        async with assisted(tmp_path, fake_engine.parrot) as assistant:
            pages = Pages(assistant, ACTIONS)
            file = (Attachment("a.txt", "words"), 1)
            for tab in ("0", "1", "", *map(str, range(2, TABS)), "0", str(TABS)):
                pages.keep(tab, [file])
            pages.keep("3", ())
            return [tab for tab in range(TABS + 1) if pages.attached(str(tab))]

    assert asyncio.run(kept()) == [0, 2, *range(4, TABS + 1)]


@asynchronous
async def test_the_beginning_of_the_next_question_is_expected(tmp_path):
    async with opened(tmp_path) as (page, _, assistant):
        expected: list[ExpectedQuestion | None] = []
        assistant.expect = expected.append
        page.do("instruct", text="Be brief.")
        await page.until(lambda: len(expected) == 1)
        page.do("attach", name="a.txt", data=base64.b64encode(b"some words").decode())
        await page.until(lambda: len(expected) == 2)
        page.do("send", text="what is it?")
        await page.answered(1)
        await page.until(lambda: len(expected) == 3)
        page.do("new")
        await page.until(lambda: len(expected) == 4)
        page.do("open", id=assistant.history.conversations()[0].id)
        await page.until(lambda: len(expected) == 5)
        told, file, answered, nothing, opened_again = expected
        assert (told.conversation, told.system, told.prefix) == (None, "Be brief.", "")
        assert (file.conversation, file.system) == (None, "Be brief.")
        assert "some words" in file.prefix
        assert (answered.conversation, answered.prefix) == (page.state["conversation"], "")
        assert nothing is None
        assert opened_again.conversation == answered.conversation


@asynchronous
async def test_a_page_says_while_something_is_read_ahead(tmp_path):
    async with opened(tmp_path, fake_engine.endless_reader) as (page, another, assistant):
        page.do("instruct", text="Be brief.")
        await page.until(lambda: "reading ahead" in page.regions["meter"])
        other = another()
        await other.until(lambda: "reading ahead" in other.regions["meter"])
        assistant.expect(None)
        await page.until(lambda: "reading ahead" not in page.regions["meter"])
        await other.until(lambda: "reading ahead" not in other.regions["meter"])


@asynchronous
async def test_a_model_that_another_page_loads_is_shown_on_every_page(tmp_path):
    async with opened(tmp_path) as (page, another, assistant):
        other = another()
        await other.until(lambda: other.state["model"] == "fake")
        page.do("model", name="pocket-draft")
        await other.until(lambda: "Loading pocket-draft" in other.regions["notice"])
        other.do("send", text="now?")
        await other.until(lambda: "is being loaded" in other.regions["notice"])
        for each in (page, other):
            await each.until(lambda p=each: p.state["model"] == "pocket-draft")
            await each.until(lambda p=each: not p.state["loading"])
        assert assistant.entry.name == "pocket-draft"


@asynchronous
async def test_a_model_that_cannot_be_loaded_leaves_the_one_before(tmp_path):
    async with opened(tmp_path) as (page, _, assistant):
        page.do("model", name=str(tmp_path))
        await page.until(lambda: "lacks" in page.regions["notice"])
        assert page.state["model"] == assistant.entry.name == "fake"


@asynchronous
async def test_the_meter_counts_prompt_answer_and_attached_files(tmp_path):
    async with opened(tmp_path, fake_engine.endless) as (page, _, assistant):
        page.do("send", text="count")
        await page.until(lambda: page.state["tokens"] > 3)
        begun = assistant.loaded.text.count("count")
        await page.until(lambda: used(page) >= begun + page.state["tokens"])
        page.do("stop")
        await page.answered(1)
        before = used(page)
        data = base64.b64encode(b"some words of a file").decode()
        page.do("attach", name="a.txt", data=data)
        await page.until(lambda: used(page) > before)


@asynchronous
async def test_unknown_commands_and_bugs_are_shown_in_place(tmp_path, caplog):
    async with opened(tmp_path) as (page, _, assistant):
        page.do("explode")
        await page.until(lambda: "cannot do" in page.regions["notice"])
        page.do("open", id="nowhere")
        await page.until(lambda: "nowhere" in page.regions["notice"])
        assistant.history.conversations = lambda *_: 1 / 0
        page.do("search", text="x")
        await page.until(lambda: "unexpected" in page.regions["notice"])
        assert "ZeroDivisionError" in caplog.text
        del assistant.history.conversations


@pytest.mark.parametrize(
    "written",
    ["", "[]", '{"do": 1}', '{"do": "a", "settings": 3}', '{"x": 1}'],
)
def test_commands_that_are_none_are_refused(written):
    with pytest.raises(InvalidRequest, match="reload the page"):
        ChatCommand.read(written)
