"""Commands of a page: their order, wrong ones, and the choice of thinking."""

import base64
import json
import shutil
from dataclasses import replace
from typing import ClassVar

import pytest

from app.chat.assistant import Assistant
from app.request import AGAIN
from app.text.chat_text import ChatText
from app.text.repetition import repeats
from app.text.template import NO_VARIABLES, ChatTemplate
from app.text.vocabulary import FolderVocabulary
from engine.errors import InvalidRequest, TooLarge
from tests.app import fake_engine
from tests.app.assisted import POCKET
from tests.app.asynchronous import asynchronous
from tests.ui.paged import Page, opened
from ui.chat.command import Settings


def attached(page: Page) -> list[str]:
    return [part.split("<small>")[0].rsplit(">")[-1] for part in page.regions["chips"].split('class="chip"')[1:]]  # fmt: skip


FILE = base64.b64encode(b"some words").decode()


class TestSettingsThatCannotBe:
    @asynchronous
    async def test_stay_as_they_were_and_the_message_is_answered(self, tmp_path):
        async with opened(tmp_path) as (page, _, assistant):
            page.do("settings", settings={"top_k": 7})
            page.do("send", text="hi", settings={"top_k": 1.5, "temperature": 0.5})
            await page.answered(1)
            assert "Top k cannot be 1.5: it must be a whole number" in page.regions["notice"]
            assert len(assistant.history.conversations()) == 1
            kept = json.loads(page.state["once"]["settings"])
            assert (kept["top_k"], kept["temperature"]) == (7, 0.5)

    @asynchronous
    async def test_leave_a_new_page_whole(self, tmp_path):
        async with opened(tmp_path) as (page, _, _assistant):
            page.do("hello", settings={"seed": 1e30, "look": "sideways", "top_p": 0.9})
            await page.until(lambda: "Seed cannot be 1e+30" in page.regions["notice"])
            assert "What can I do" in page.regions["welcome"]
            kept = json.loads(page.state["once"]["settings"])
            assert (kept["seed"], kept["look"], kept["top_p"]) == (None, "auto", 0.9)

    @asynchronous
    async def test_do_not_hide_what_goes_back_into_the_input(self, tmp_path):
        async with opened(tmp_path) as (page, _, _assistant):
            page.do("send", text=" ", settings={"top_k": 1.5})
            await page.until(lambda: "Write something" in page.regions["notice"])
            assert page.state["once"]["box"] == " "
            assert json.loads(page.state["once"]["settings"])["top_k"] is None

    @asynchronous
    async def test_a_speed_mode_of_another_model_is_kept_and_auto_answers(self, tmp_path):
        async with opened(tmp_path) as (page, _, _assistant):
            page.do("send", text="hi", settings={"mode": "early_exit"})
            await page.answered(1)
            assert page.regions["notice"] == ""
            assert page.session.state.settings.mode == "early_exit"


class TestOrder:
    @asynchronous
    async def test_commands_are_obeyed_in_the_order_in_which_they_were_given(self, tmp_path):
        async with opened(tmp_path) as (page, _, _assistant):
            for number in (3, 1, 4, 2):
                page.do("attach", name=f"{number}.txt", data=FILE, number=number)
            await page.until(lambda: len(attached(page)) == 4)
            assert attached(page) == ["1.txt", "2.txt", "3.txt", "4.txt"]
            assert page.state["taken"] == 4

    @asynchronous
    async def test_a_lost_command_is_not_waited_for_without_end(self, tmp_path, monkeypatch):
        monkeypatch.setattr("ui.chat.page_session.LATE_SECONDS", 0.2)
        async with opened(tmp_path) as (page, _, _assistant):
            for number in (57, 59):  # the server was started again meanwhile
                page.do("attach", name=f"{number}.txt", data=FILE, number=number)
            await page.until(lambda: len(attached(page)) == 2)
            page.do("attach", name="58.txt", data=FILE, number=58)
            page.do("attach", name="60.txt", data=FILE, number=60)
            await page.until(lambda: len(attached(page)) == 4)
            assert attached(page) == ["57.txt", "59.txt", "58.txt", "60.txt"]


@asynchronous
async def test_files_stay_where_the_text_stays(tmp_path):
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
        await page.until(lambda: ">second<" in page.text and not page.state["busy"])
        assert attached(page) == []
        assert "a.txt" in page.text


@asynchronous
async def test_a_model_that_seems_too_large_can_be_loaded_anyway(tmp_path, monkeypatch):
    asked = []

    async def switch(_: Assistant, model: str, *, anyway: bool = False) -> None:
        asked.append((model, anyway))
        if not anyway:
            raise TooLarge("it needs 5.0 GiB, and 2.0 GiB are free")

    monkeypatch.setattr(Assistant, "switch", switch)
    async with opened(tmp_path) as (page, _, _assistant):
        page.do("model", name="large")
        await page.until(lambda: "2.0 GiB are free" in page.regions["notice"])
        assert 'data-do="model-anyway" data-id="large"' in page.regions["notice"]
        page.do("model-anyway", id="large")
        await page.until(lambda: "alert" not in page.regions["notice"])
        assert asked == [("large", False), ("large", True)]
        page.do("settings")
        await page.until(lambda: "Load anyway" not in page.regions["notice"])


@asynchronous
async def test_an_answer_that_only_repeats_itself_ends(tmp_path):
    async with opened(tmp_path, fake_engine.stuck) as (page, _, assistant):
        page.do("send", text="What is it?")
        await page.answered(1)
        assert "Stopped, as it only repeated itself." in page.text
        assert "Stopped by you" not in page.text
        [_, answer] = assistant.history.messages(page.state["conversation"])
        assert 1_000 < len(answer.content) < 10_000
        assert repeats(answer.content)


@asynchronous
async def test_a_file_that_the_page_refuses_is_reported_in_its_words(tmp_path):
    async with opened(tmp_path) as (page, _, _assistant):
        for what in ("attach", "import"):
            page.do(what, name=f"{what}.txt", text="has 6.0 MiB; choose one of at most 2 MiB")
            said = f"{what}.txt has 6.0 mib; choose one of at most 2 mib."
            await page.until(lambda words=said: words in page.regions["notice"].lower())


@asynchronous
async def test_a_conversation_deleted_while_it_is_answered_leaves_without_an_alarm(tmp_path):
    async with opened(tmp_path, fake_engine.endless) as (page, another, _assistant):
        other = another()
        await other.until(lambda: other.state["ready"])
        page.do("send", text="count")
        await page.until(lambda: page.state["tokens"] > 3)
        other.do("delete", id=page.state["conversation"])
        await page.until(lambda: page.state["conversation"] == "")
        assert page.regions["notice"] == ""


@asynchronous
async def test_a_command_that_cannot_be_read_is_reported(tmp_path):
    async with opened(tmp_path) as (page, _, _assistant):
        await page.until(lambda: page.state["ready"])
        page.session.refuse(InvalidRequest("do: field required; reload the page"))
        await page.until(lambda: "Do: field required" in page.regions["notice"])


# --- thinking -------------------------------------------------------------------------------------

SWITCHED = (
    "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}<|end|>{% endfor %}<|assistant|>"
    "{% if enable_thinking is defined and not enable_thinking %}<think></think>{% endif %}"
)


class Noting(ChatText):
    """Notes the variables for thinking that the template gets."""

    noted: ClassVar[list[set[str]]] = []

    def render(self, messages, tools=(), variables=NO_VARIABLES):
        if messages[-1].content == "hi":
            self.noted.append({"enable_thinking"} & set(variables))
        return super().render(messages, tools, variables)


@asynchronous
async def test_a_model_without_a_switch_for_thinking_offers_none(tmp_path):
    async with opened(tmp_path) as (page, _, _assistant):
        await page.until(lambda: "Speed" in page.regions["pickers"])
        assert "Thinking" not in page.regions["pickers"]
        page.do("send", text="hi", settings={"thinking": "off"})  # kept from another model
        await page.answered(1)
        assert page.regions["notice"] == ""


@asynchronous
async def test_the_chosen_thinking_reaches_the_template(tmp_path):
    async with opened(tmp_path) as (page, _, assistant):
        text = Noting(FolderVocabulary.load(POCKET), ChatTemplate(SWITCHED, {}), ())
        object.__setattr__(assistant.loaded, "text", text)
        page.do("refresh")
        await page.until(lambda: "Thinking" in page.regions["pickers"])
        choices = (
            '<option value="">As usual</option><option value="off">Off</option></select></label>'
        )
        assert page.regions["pickers"].endswith(choices)
        for count, thinking in enumerate(("off", ""), 1):
            page.do("send", text="hi", settings={"thinking": thinking})
            await page.answered(count)
            assert ({"enable_thinking"} in text.noted) == (thinking == "off")
            text.noted.clear()


class TestSamplingOfTheModelsOwn:
    def test_what_nobody_chose_is_the_models(self):
        options = Settings(temperature=0.3).options(100)
        assert options.temperature == 0.3
        assert options.unset == {"top_p", "top_k", "min_p", "repeat"}

    @pytest.mark.parametrize(
        ("settings", "own", "changed"),
        [
            ({}, {}, {"temperature": AGAIN}),
            ({}, {"top_k": 20}, {"temperature": AGAIN}),
            ({}, {"temperature": 0.5, "top_p": 0.9}, {"temperature": AGAIN}),  # nearly greedy
            ({}, {"temperature": 0.6}, {}),  # another answer by itself
            ({"temperature": 0.5}, {}, {}),
            ({"temperature": 0}, {}, {}),  # as a person wants it
            ({"seed": 7}, {}, {"seed": 9}),
        ],
    )
    def test_again_gives_another_answer(self, settings, own, changed):
        """The default was greedy: again repeated the answer word for word."""
        usual = Settings.model_validate(settings).options(100)
        found = usual.another(own, versions=2)
        assert found == replace(usual, **changed, unset=usual.unset - {*changed})

    @asynchronous
    async def test_a_base_model_continues_and_offers_templates(self, tmp_path):
        folder = tmp_path / "base"
        shutil.copytree(POCKET, folder)
        (folder / "chat_template.jinja").unlink()
        async with opened(tmp_path, text=ChatText.load(folder)) as (page, _, _assistant):
            page.do("hello")
            await page.until(lambda: "continues your text" in page.regions["notice"])
            assert "None: continue my text" in page.regions["pickers"]
            assert "Write a beginning" in page.regions["welcome"]
            page.do("send", text="Once upon a time")
            await page.answered(1)
