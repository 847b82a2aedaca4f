"""What a page does with its commands: sessions over an assistant whose engine is a fake."""

import asyncio
import base64
import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from app.ahead import Expected
from app.assistant import Assistant
from app.process.child import Entry
from engine.errors import InvalidRequest
from tests.app import fake_engine
from tests.app.assisted import assisted
from tests.app.asynchronous import asynchronous
from tests.app.history.many import WORDS, fill
from ui.actions import ACTIONS
from ui.command import Command
from ui.session import LISTED, Pages, Session


class Page:
    """What a browser would show: regions are applied as they come."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.regions: dict[str, Any] = {}
        self._task = asyncio.create_task(self._show())
        self.do("hello")

    async def _show(self) -> None:
        async for changed in self.session.views():
            self.regions |= changed

    def do(self, what: str, /, **more: Any) -> None:
        self.session.post(Command(do=what, **more))

    async def until(self, true: Callable[[], object]) -> None:
        async with asyncio.timeout(20):
            while not (self.regions and true()):
                await asyncio.sleep(0.005)

    async def answered(self, count: int) -> None:
        await self.until(lambda: len(self.captions) == count and not self.state["busy"])

    async def close(self) -> None:
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task

    @property
    def text(self) -> str:
        parts = (part for row in self.regions["rows"] for part in row["content"])
        return "".join(part.get("text") or part["value"] for part in parts)

    @property
    def captions(self) -> list[str]:
        return self.text.split('class="figures"')[1:]

    @property
    def state(self) -> dict[str, Any]:
        return json.loads(unescape(self.regions["state"].split('data-state="')[1].split('"')[0]))


def used(page: Page) -> int:
    return int(page.regions["meter"].split('aria-valuenow="')[1].split('"')[0])


@asynccontextmanager
async def opened(
    folder: Path, entry: Entry = fake_engine.parrot
) -> AsyncIterator[tuple[Page, Callable[[], Page], Assistant]]:
    async with assisted(folder, entry) as assistant:
        pages, made = Pages(assistant, ACTIONS), []

        def another() -> Page:
            made.append(Page(pages.session(str(len(made)))))
            return made[-1]

        yield another(), another, assistant
        for page in made:
            await page.close()


@asynchronous
async def test_first_message_begins_a_conversation_under_its_first_words(tmp_path: Path) -> None:
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
async def test_what_cannot_be_answered_goes_back_into_the_input(
    text: str, told: str, tmp_path: Path
) -> None:
    async with opened(tmp_path) as (page, _, assistant):
        page.do("send", text=text)
        await page.until(lambda: told in page.regions["notice"])
        assert page.state["once"] == {"box": text}
        assert page.state["conversation"] == ""
        assert assistant.history.conversations() == []


@asynchronous
async def test_a_page_that_is_opened_again_shows_the_running_answer(tmp_path: Path) -> None:
    async with opened(tmp_path, fake_engine.endless) as (page, another, assistant):
        page.do("send", text="count")
        await page.until(lambda: page.state["tokens"] > 3)
        chat = page.state["conversation"]
        await page.close()
        again = another()
        again.do("hello", id=chat)
        await again.until(lambda: again.state["tokens"] > 6 and again.state["busy"])
        assert assistant.running(chat) is not None
        again.do("stop")
        await again.answered(1)
        assert again.text.count('class="plain"') == 1
        assert "Stopped by you." in again.text


@asynchronous
async def test_another_conversation_can_be_opened_while_an_answer_runs(tmp_path: Path) -> None:
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
async def test_versions_edit_and_continue(tmp_path: Path) -> None:
    async with opened(tmp_path) as (page, _, assistant):
        page.do("send", text="one two")
        await page.answered(1)
        page.do("again")
        await page.until(lambda: "2 / 2" in page.text)
        path = assistant.history.messages(page.state["conversation"])
        page.do("edit", id=path[0].id, text="three")
        await page.until(lambda: "three" in page.text and not page.state["busy"])
        assert "one two" not in page.text
        page.do("show", id=path[0].id)
        await page.until(lambda: "one two" in page.text)
        page.do("continue")
        await page.until(lambda: not page.state["busy"] and "figures" in page.text)


@asynchronous
async def test_what_one_page_changes_is_seen_on_the_other(tmp_path: Path) -> None:
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
async def test_export_and_import(tmp_path: Path) -> None:
    async with opened(tmp_path) as (page, _, assistant):
        page.do("send", text="hello")
        await page.answered(1)
        for kind in ("json", "markdown"):
            page.do(f"export-{kind}", id=page.state["conversation"])
            await page.until(lambda: page.state["once"].get("file"))
            data = base64.b64encode(page.state["once"]["file"].encode()).decode()
            before = len(assistant.history.conversations())
            page.do("import", name="file", data=data)
            await page.until(lambda n=before: len(assistant.history.conversations()) == n + 1)
            await page.until(lambda: not page.state["busy"] and "hello" in page.text)
        page.do("import", name="bad.json", data=base64.b64encode(b"{}").decode())
        await page.until(lambda: "bad.json is no conversation" in page.regions["notice"])


@asynchronous
async def test_attached_files_are_counted_and_go_with_the_message(tmp_path: Path) -> None:
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
async def test_what_the_next_question_stands_behind_is_expected(tmp_path: Path) -> None:
    async with opened(tmp_path) as (page, _, assistant):
        expected: list[Expected | None] = []
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
        assert (told.conversation, told.system, told.begun) == (None, "Be brief.", "")
        assert (file.conversation, file.system) == (None, "Be brief.")
        assert "some words" in file.begun
        assert (answered.conversation, answered.begun) == (page.state["conversation"], "")
        assert nothing is None
        assert opened_again.conversation == answered.conversation


@asynchronous
async def test_a_page_says_while_something_is_read_ahead(tmp_path: Path) -> None:
    async with opened(tmp_path, fake_engine.endless_reader) as (page, another, assistant):
        page.do("instruct", text="Be brief.")
        await page.until(lambda: "reading ahead" in page.regions["meter"])
        other = another()
        await other.until(lambda: "reading ahead" in other.regions["meter"])
        assistant.expect(None)
        await page.until(lambda: "reading ahead" not in page.regions["meter"])
        await other.until(lambda: "reading ahead" not in other.regions["meter"])


@asynchronous
async def test_presets_bring_their_prompt_and_sampling(tmp_path: Path) -> None:
    async with opened(tmp_path) as (page, _, _assistant):
        page.do("preset-save", name="Hot", text="Be wild.", settings={"temperature": 1.5})
        await page.until(lambda: "Hot" in page.regions["presets"])
        page.do("preset-use", name="Hot", settings={})
        await page.until(lambda: page.state["system"] == "Be wild.")
        assert json.loads(page.state["once"]["settings"])["temperature"] == 1.5


@pytest.mark.slow
@asynchronous
async def test_years_of_conversations_are_listed_searched_and_opened_quickly(
    tmp_path: Path,
) -> None:
    """From the command to the values of the regions, the tokens of the context counted."""
    async with opened(tmp_path) as (_, another, assistant):
        fill(assistant.history, 10_000)
        took: dict[str, list[float]] = {"list": [], "search": [], "open": []}
        for number in range(3):  # other processes share this machine
            page = another()
            begun = time.perf_counter()
            await page.until(lambda p=page: p.regions["side"].count("<li>") == LISTED)
            took["list"].append(time.perf_counter() - begun)
            begun = time.perf_counter()
            page.do("search", text=WORDS[number])
            await page.until(lambda p=page: "Found" in p.regions["side"])
            took["search"].append(time.perf_counter() - begun)
            begun = time.perf_counter()
            page.do("open", id=f"c{number}")
            await page.until(lambda p=page, n=number: p.state["conversation"] == f"c{n}")
            took["open"].append(time.perf_counter() - begun)
        allowed = {"list": 0.15, "search": 0.15, "open": 0.3}
        assert all(min(took[name]) < limit for name, limit in allowed.items()), took
        print(took)  # noqa: T201 - shown with -s


@asynchronous
async def test_a_model_that_another_page_loads_is_told_on_every_page(tmp_path: Path) -> None:
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
async def test_a_model_that_cannot_be_loaded_leaves_the_one_before(tmp_path: Path) -> None:
    async with opened(tmp_path) as (page, _, assistant):
        page.do("model", name=str(tmp_path))
        await page.until(lambda: "lacks" in page.regions["notice"])
        assert page.state["model"] == assistant.entry.name == "fake"


@asynchronous
async def test_the_meter_counts_prompt_answer_and_attached_files(tmp_path: Path) -> None:
    async with opened(tmp_path, fake_engine.endless) as (page, _, assistant):
        page.do("send", text="count")
        await page.until(lambda: page.state["tokens"] > 3)
        begun = await assistant.count("count")
        await page.until(lambda: used(page) >= begun + page.state["tokens"])
        page.do("stop")
        await page.answered(1)
        before = used(page)
        data = base64.b64encode(b"some words of a file").decode()
        page.do("attach", name="a.txt", data=data)
        await page.until(lambda: used(page) > before)


@asynchronous
async def test_unknown_commands_and_bugs_are_told_in_place(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
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
def test_commands_that_are_none_are_refused(written: str) -> None:
    with pytest.raises(InvalidRequest, match="reload the page"):
        Command.read(written)


def attached(page: Page) -> list[str]:
    return [part.split("<small>")[0].rsplit(">")[-1] for part in page.regions["chips"].split('class="chip"')[1:]]  # fmt: skip


FILE = base64.b64encode(b"some words").decode()


class TestSettingsThatCannotBe:
    @asynchronous
    async def test_stay_as_they_were_and_the_message_is_answered(self, tmp_path: Path) -> None:
        async with opened(tmp_path) as (page, _, assistant):
            page.do("look", settings={"top_k": 7})
            page.do("send", text="hi", settings={"top_k": 1.5, "temperature": 0.5})
            await page.answered(1)
            assert "Top k cannot be 1.5: it has to be a whole number" in page.regions["notice"]
            assert len(assistant.history.conversations()) == 1
            kept = json.loads(page.state["once"]["settings"])
            assert (kept["top_k"], kept["temperature"]) == (7, 0.5)

    @asynchronous
    async def test_leave_a_new_page_whole(self, tmp_path: Path) -> None:
        async with opened(tmp_path) as (page, _, _assistant):
            page.do("hello", settings={"seed": 1e30, "look": "sideways", "top_p": 0.9})
            await page.until(lambda: "Seed cannot be 1e+30" in page.regions["notice"])
            assert "What can I do" in page.regions["welcome"]
            kept = json.loads(page.state["once"]["settings"])
            assert (kept["seed"], kept["look"], kept["top_p"]) == (None, "auto", 0.9)

    @asynchronous
    async def test_do_not_hide_what_goes_back_into_the_input(self, tmp_path: Path) -> None:
        async with opened(tmp_path) as (page, _, _assistant):
            page.do("send", text=" ", settings={"top_k": 1.5})
            await page.until(lambda: "Write something" in page.regions["notice"])
            assert page.state["once"]["box"] == " "
            assert json.loads(page.state["once"]["settings"])["top_k"] == 0

    @asynchronous
    async def test_a_speed_mode_of_another_model_is_kept_and_auto_answers(
        self, tmp_path: Path
    ) -> None:
        async with opened(tmp_path) as (page, _, _assistant):
            page.do("send", text="hi", settings={"mode": "early_exit"})
            await page.answered(1)
            assert page.regions["notice"] == ""
            assert page.session.shown.settings.mode == "early_exit"


class TestOrder:
    @asynchronous
    async def test_commands_are_obeyed_in_the_order_in_which_they_were_given(
        self, tmp_path: Path
    ) -> None:
        async with opened(tmp_path) as (page, _, _assistant):
            for number in (3, 1, 4, 2):
                page.do("attach", name=f"{number}.txt", data=FILE, number=number)
            await page.until(lambda: len(attached(page)) == 4)
            assert attached(page) == ["1.txt", "2.txt", "3.txt", "4.txt"]
            assert page.state["taken"] == 4

    @asynchronous
    async def test_one_that_never_comes_is_not_waited_for_for_ever(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("ui.session.LATE_SECONDS", 0.2)
        async with opened(tmp_path) as (page, _, _assistant):
            for number in (57, 59):  # the server was started again meanwhile
                page.do("attach", name=f"{number}.txt", data=FILE, number=number)
            await page.until(lambda: len(attached(page)) == 2)
            page.do("attach", name="58.txt", data=FILE, number=58)
            page.do("attach", name="60.txt", data=FILE, number=60)
            await page.until(lambda: len(attached(page)) == 4)
            assert attached(page) == ["57.txt", "59.txt", "58.txt", "60.txt"]


@asynchronous
async def test_files_stay_where_the_text_stays(tmp_path: Path) -> None:
    async with opened(tmp_path) as (page, _, assistant):
        page.do("send", text="first")
        await page.answered(1)
        page.do("attach", name="a.txt", data=FILE)
        page.do("new")
        await page.until(lambda: page.state["conversation"] == "")
        assert attached(page) == ["a.txt"]
        page.do("open", id=assistant.history.conversations()[0].id)
        await page.until(lambda: page.state["conversation"])
        assert attached(page) == ["a.txt"]
        [asked, _] = assistant.history.messages(page.state["conversation"])
        page.do("edit", id=asked.id, text="second")
        await page.until(lambda: "second" in page.text and not page.state["busy"])
        assert attached(page) == []
        assert "a.txt" in page.text


@asynchronous
async def test_a_file_that_the_page_does_not_send_is_told_in_its_words(tmp_path: Path) -> None:
    async with opened(tmp_path) as (page, _, _assistant):
        for what in ("attach", "import"):
            page.do(what, name=f"{what}.txt", text="has 6.0 MiB; choose one of at most 5 MiB")
            said = f"{what}.txt has 6.0 mib; choose one of at most 5 mib."
            await page.until(lambda words=said: words in page.regions["notice"].lower())


@asynchronous
async def test_a_conversation_deleted_while_it_is_answered_leaves_without_an_alarm(
    tmp_path: Path,
) -> None:
    async with opened(tmp_path, fake_engine.endless) as (page, another, _assistant):
        other = another()
        await other.until(lambda: other.state["ready"])
        page.do("send", text="count")
        await page.until(lambda: page.state["tokens"] > 3)
        other.do("delete", id=page.state["conversation"])
        await page.until(lambda: page.state["conversation"] == "")
        assert page.regions["notice"] == ""


@asynchronous
async def test_a_command_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    async with opened(tmp_path) as (page, _, _assistant):
        await page.until(lambda: page.state["ready"])
        page.session.complain(InvalidRequest("do: field required; reload the page"))
        await page.until(lambda: "Do: field required" in page.regions["notice"])
