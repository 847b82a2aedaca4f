"""Stories of the history tab: what was measured, what is model, care for the database."""

import json
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from app.history.store import History
from tests.ui.application import Application
from tests.ui.browser import answered, button, visiting, write
from tests.ui.lived_in import STRANGE

pytestmark = pytest.mark.browser


@pytest.fixture
def page(lived_in: Application, browser: Browser) -> Iterator[Page]:
    with visiting(browser, lived_in) as opened:
        _history(opened)
        yield opened


def _history(page: Page) -> None:
    page.get_by_role("tab", name="History").click()
    expect(page.get_by_role("heading", name="Database")).to_be_visible()


def _rows(page: Page, heading: str) -> list[str]:
    table = page.locator("#history table", has=page.get_by_role("columnheader", name=heading))
    return table.locator("tbody th").all_inner_texts()


def test_figures_by_drafter_task_model_and_day(page):
    names = {heading: _rows(page, heading) for heading in ("Drafter", "Task", "Model")}
    assert [name.split("\n")[0] for name in names["Model"]] == ["pocket", STRANGE]
    assert {name.split("\n")[0] for name in names["Drafter"]} == {
        "Optimal draft tree", "Lookup", "Early exit", "Plain",
    }  # fmt: skip
    assert {name.split("\n")[0] for name in names["Task"]} == {"Conversation", "Working on a text"}
    days = page.get_by_role("img", name="Speed by day")
    expect(days.locator("rect")).to_have_count(3)
    model = page.locator("#history").get_by_role("combobox", name="Model")
    model.focus()
    model.select_option(STRANGE)
    expect(page.locator("#history .measured")).to_have_count(2)
    assert [name.split("\n")[0] for name in _rows(page, "Drafter")] == ["Early exit"]
    expect(page.locator("#history .totals")).to_contain_text("1.25\u00d7")
    expect(model).to_be_focused()  # drawn again, and the focus stays


def test_what_the_next_answer_starts_from(page):
    model = page.locator(".priors-of", has=page.get_by_role("heading", name="pocket"))
    chat = model.locator("details", has_text="Conversation")
    expect(chat).to_contain_text("Optimal draft tree is expected to be fastest: 2.5 times plain")
    expect(chat.get_by_text("on 60 passes")).to_be_hidden()
    chat.locator("summary").click()
    tree = chat.locator("li", has_text="Optimal draft tree")
    expect(tree).to_contain_text("2.50\u00d7")
    expect(tree.get_by_role("img", name="token 1: 75%")).to_be_visible()


def test_a_copy_is_made_and_downloaded_and_the_database_is_sound(page, tmp_path):
    button(page, "Check integrity")
    expect(page.locator("#history .result")).to_contain_text("it is sound")
    expect(page.get_by_role("button", name="Check integrity")).to_be_enabled()
    button(page, "Back up")
    with page.expect_download() as started:
        page.get_by_role("link", name="Download").click()
    copy = tmp_path / "history.db"
    started.value.save_as(copy)
    history = History.open(copy)
    assert history.notice is None
    assert {one.model for one in history.figures.seen()} >= {"pocket"}
    history.close()


def test_forgetting_one_model_then_all_with_the_keyboard(page):
    model = page.locator(".priors-of", has=page.get_by_role("heading", name=STRANGE))
    model.get_by_role("button", name="Forget", exact=True).click()
    dialog = page.get_by_role("dialog", name="Forget the figures of")
    dialog.get_by_role("button", name="Cancel").click()
    expect(dialog).to_be_hidden()
    model.get_by_role("button", name="Forget", exact=True).click()
    dialog.get_by_role("button", name="Forget its figures").click()
    expect(page.locator("#history .result")).to_contain_text("The figures of 3 answers are deleted")
    expect(page.locator(".priors-of")).to_have_count(1)
    page.get_by_role("button", name="Forget all").focus()
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Nothing has been measured yet")).to_be_visible()


def test_an_answer_adds_to_the_history(app, browser):
    with visiting(browser, app) as page:
        page.get_by_role("tab", name="History").click()
        expect(page.locator("#history .path")).to_contain_text("history.db")
        page.get_by_role("tab", name="Chat").click()
        write(page, "Repeat this: " + json.dumps("a red boat " * 10))
        answered(page, 1)
        _history(page)
        expect(page.locator("#history .totals")).to_contain_text("tokens per second")
        assert _rows(page, "Drafter")
