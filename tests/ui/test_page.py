"""Stories of the chat in a real browser, with the real model."""

import json

import pytest
from playwright.sync_api import expect

from tests.ui.browser import (
    LONG,
    answered,
    button,
    choose,
    decode_plainly,
    violations,
    visiting,
    write,
)
from ui.help_panel import read_topics
from ui.page import TABS

pytestmark = pytest.mark.browser

WIDE, NARROW = {"width": 1440, "height": 900}, {"width": 390, "height": 844}
MARKDOWN = """Repeat this text exactly:
# Notes
Some **bold** words and \\(x^2\\).
```python
def add(a, b):
    return a + b
```"""


def test_first_start_offers_three_suggestions_that_show_the_speed(page):
    expect(page).to_have_title("Slipstream")
    expect(page.locator(".card")).to_have_count(3)
    page.get_by_role("button", name="Quote a text").click()
    answered(page, 1)
    caption = page.locator(".caption")
    for part in ("plain", "tokens/s", "first token", "drafted accepted", "tokens/pass"):
        expect(caption).to_contain_text(part)
    expect(caption.locator(".why")).to_contain_text("Auto")
    expect(page.locator("#meter")).not_to_contain_text("0 of", use_inner_text=True)


def test_stop_regenerate_versions_and_continue(page):
    decode_plainly(page)
    write(page, LONG)
    expect(page.locator(".question")).to_have_text(LONG)
    expect(page.locator(".running")).to_contain_text("Writing")
    page.wait_for_function("/^● [0-9]+ tokens/.test(document.title)")
    page.get_by_label("Your message").fill("the next thought")
    button(page, "Stop")
    expect(page.locator(".caption .about")).to_contain_text("Stopped by you")
    expect(page.get_by_label("Your message")).to_have_value("the next thought")
    first = page.locator(".plain").inner_text()
    button(page, "Continue this answer")
    expect(page.locator(".running")).to_be_visible()
    page.wait_for_function(
        "n => document.querySelector('.plain').innerText.length > n", arg=len(first)
    )
    page.keyboard.press("Escape")
    expect(page.locator(".caption .about")).to_contain_text("Stopped by you")
    assert page.locator(".plain").inner_text().startswith(first.rstrip())
    button(page, "Regenerate this answer")  # another answer, which may be over before a stop
    expect(page.locator(".choice")).to_have_text("2 / 2")
    button(page, "Earlier version")
    expect(page.locator(".choice")).to_have_text("1 / 2")


def test_edit_and_branch(page):
    write(page, "What is 12 + 30?")
    answered(page, 1)
    page.locator(".user-row").hover()
    button(page, "Edit this message")
    expect(page.locator("#editing")).to_be_visible()
    expect(page.get_by_label("Your message")).to_have_value("What is 12 + 30?")
    write(page, "What is 2 + 3?")
    expect(page.locator(".question")).to_have_text("What is 2 + 3?")
    answered(page, 1)
    page.locator(".user-row").hover()
    button(page, "Earlier version")
    expect(page.locator(".question")).to_have_text("What is 12 + 30?")


def test_reload_attaches_to_the_running_answer(page):
    decode_plainly(page)
    write(page, LONG)
    expect(page.locator(".running")).to_contain_text("Writing")
    before = page.locator(".plain").inner_text()
    page.reload()
    expect(page.locator(".running")).to_contain_text("Writing")
    page.wait_for_function(
        "n => document.querySelector('.plain').innerText.length > n", arg=len(before)
    )
    expect(page.locator(".question")).to_have_count(1)
    expect(page.get_by_label("Speed")).to_have_value("none")
    button(page, "Stop")
    expect(page.locator(".caption .about")).to_contain_text("Stopped by you")


def test_list_search_rename_pin_delete(page):
    for text in ("Tell me about zebras", "Tell me about walruses"):
        button(page, "New chat")
        expect(page.locator(".card")).to_have_count(3)
        write(page, text)
        answered(page, 1)
    items = page.locator("#side li")
    page.get_by_label("Search conversations").fill("zebra")
    expect(items).to_have_count(1)
    choose(page, items.first, "Rename")
    page.get_by_label("New title").fill("Stripes")
    page.keyboard.press("Enter")
    expect(items.first.locator(".open")).to_have_text("Stripes")
    page.get_by_label("Search conversations").fill("no such words")
    expect(page.locator("#side .none")).to_be_visible()
    page.get_by_label("Search conversations").fill("")
    stripes = items.filter(has_text="Stripes")
    choose(page, stripes, "Pin")
    expect(page.locator("#side h2").first).to_have_text("Pinned")
    expect(items.first).to_have_text("Stripes")
    stripes.locator(".open").click()
    expect(page.locator(".question")).to_have_text("Tell me about zebras")
    choose(page, stripes, "Delete", "Really delete?")
    expect(stripes).to_have_count(0)
    expect(page.locator(".card")).to_have_count(3)


def test_export_and_import(page, tmp_path):
    write(page, "Say hello to the export")
    answered(page, 1)
    items = page.locator("#side li")
    for kind, ending in (("JSON", "json"), ("Markdown", "md")):
        with page.expect_download() as download:
            choose(page, items.first, f"Export as {kind}")
        assert download.value.suggested_filename == f"Say-hello-to-the-export.{ending}"
        kept = tmp_path / f"kept.{ending}"
        download.value.save_as(kept)
        assert "Say hello to the export" in kept.read_text(encoding="utf-8")
        before, place = items.count(), page.url
        page.locator("#import-file").set_input_files(kept)
        expect(items).to_have_count(before + 1)
        expect(page).not_to_have_url(place)
        expect(page.locator(".question")).to_have_text("Say hello to the export")
    assert json.loads((tmp_path / "kept.json").read_text())["title"] == "Say hello to the export"


def test_markdown_code_formulas_and_the_overlay(page):
    button(page, "Settings")
    page.get_by_label("Show answers as").select_option("markdown")
    page.get_by_label("Colour drafted words").check()
    write(page, MARKDOWN)
    answered(page, 1)
    answer = page.locator("#rows .bot-row").first
    expect(answer.locator("pre code")).to_contain_text("return a + b")
    expect(answer.locator("h1")).to_have_text("Notes")
    expect(answer.locator("strong")).to_have_text("bold")
    expect(answer.locator(".katex").first).to_be_attached()
    before = answer.inner_html()
    assert page.evaluate("CSS.highlights.get('drafted').size") > 0
    page.keyboard.press("Alt+c")
    page.wait_for_function("CSS.highlights.get('drafted').size === 0")
    assert answer.inner_html() == before


def test_settings_presets_and_system_prompt(page):
    button(page, "Settings")
    page.get_by_label("System prompt").fill("You are brief.")
    page.get_by_label("Temperature").fill("0.7")
    page.get_by_label("Name of a preset").fill("Brief")
    button(page, "Save")
    presets = page.locator("#preset")
    expect(presets.locator("option")).to_have_text(["None", "Brief"])
    button(page, "Back to the defaults")
    expect(page.get_by_label("Temperature")).to_have_value("0")
    page.get_by_label("System prompt").fill("")
    presets.select_option("Brief")
    expect(page.get_by_label("System prompt")).to_have_value("You are brief.")
    expect(page.get_by_label("Temperature")).to_have_value("0.7")
    write(page, "Hello!")
    answered(page, 1)
    page.reload()
    expect(page.locator(".question")).to_have_text("Hello!")
    expect(page.get_by_label("System prompt")).to_have_value("You are brief.")
    expect(page.get_by_label("Temperature")).to_have_value("0.7")
    button(page, "Settings")
    presets.select_option("Brief")
    button(page, "Delete")
    expect(presets.locator("option")).to_have_text(["None"])


def test_keyboard_only(page):
    page.keyboard.press("/")
    page.keyboard.type("What is 1 + 2?")
    page.keyboard.press("Enter")
    answered(page, 1)
    page.keyboard.press("ArrowUp")
    expect(page.get_by_label("Your message")).to_have_value("What is 1 + 2?")
    page.keyboard.press("Escape")
    expect(page.get_by_label("Your message")).to_have_value("")
    page.keyboard.press("Alt+r")
    expect(page.locator(".choice")).to_have_text("2 / 2")
    page.keyboard.press("Alt+,")
    expect(page.locator(".choice")).to_have_text("1 / 2")
    page.keyboard.press("Alt+n")
    expect(page.locator(".card")).to_have_count(3)
    page.keyboard.press("Control+k")
    expect(page.get_by_label("Search conversations")).to_be_focused()
    page.keyboard.press("Tab")
    expect(page.locator("#side .open").first).to_be_focused()
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(page.locator("#side h2").first).to_have_text("Pinned")
    expect(page.locator("#side .more").first).to_be_focused()
    page.keyboard.press("Enter")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(page.locator("#side h2").first).to_have_text("Recent")


def test_help_is_searched_and_its_links_lead_to_topics(page):
    page.locator("#box").blur()  # "?" is a letter in the input
    page.keyboard.press("?")
    dialog = page.get_by_role("dialog")
    expect(dialog).to_be_visible()
    expect(dialog.locator(".topic")).to_have_count(1 + len(read_topics()))
    dialog.get_by_text("Keyboard shortcuts").click()
    expect(dialog.get_by_text("Search conversations", exact=True)).to_be_visible()
    search = dialog.get_by_label("Search the help")
    search.fill("KV CACHE")
    shown = dialog.locator(".topic:visible")
    assert 0 < shown.count() <= len(read_topics())
    search.fill("zebra walrus")
    expect(dialog.get_by_role("status")).to_contain_text("No topic")
    search.fill("")
    link = dialog.locator("article a[data-topic]").first
    key = link.get_attribute("data-topic")
    link.evaluate("link => link.closest('details').open = true")
    link.click()
    expect(dialog.locator(".topic[open]")).to_have_attribute("data-topic", key or "")
    page.keyboard.press("Escape")
    expect(dialog).not_to_be_visible()


def test_figures_are_explained_where_the_focus_is(page):
    write(page, "What is 12 + 30?")
    answered(page, 1)
    page.locator(".caption summary").click()
    page.locator(".caption summary").focus()
    for _ in range(2):
        page.keyboard.press("Tab")
    tip = "getComputedStyle(document.activeElement, '::before').content"
    assert page.evaluate(tip) == json.dumps(page.locator(":focus").get_attribute("data-tip"))
    assert page.locator(":focus").bounding_box() is not None
    button(page, "Hide these lines")
    expect(page.locator(".caption .about")).to_be_hidden()
    page.reload()
    expect(page.locator(".caption .about")).to_be_hidden()


def test_captions_can_be_hidden(page):
    write(page, "What is 2 + 3?")
    answered(page, 1)
    summary = page.locator(".caption summary")
    expect(page.locator(".caption .figures")).to_be_hidden()
    summary.click()
    expect(page.locator(".caption .figures")).to_be_visible()
    button(page, "Settings")
    page.get_by_label("Explain under each answer what drafting did").uncheck()
    expect(summary).to_be_hidden()
    page.reload()
    expect(page.locator(".question")).to_be_visible()
    expect(summary).to_be_hidden()


def test_dark_and_light(page):
    paper = "getComputedStyle(document.getElementById('page')).backgroundColor"
    assert page.evaluate(paper) == "rgb(252, 252, 251)"
    button(page, "Dark or light")
    assert page.evaluate(paper) == "rgb(17, 21, 19)"
    page.reload()
    page.wait_for_selector("#page.ready")
    assert page.evaluate(paper) == "rgb(17, 21, 19)"


def test_a_question_is_shown_letter_by_letter(page):
    text = "${7*7} {{7*7}} <b>x</b> &amp; *y*\n    indented <img src=x onerror=alert(1)>"
    write(page, text)
    expect(page.locator(".question")).to_have_text(text, use_inner_text=True)
    answered(page, 1)
    button(page, "Copy this answer")
    expect(page.locator(".act.done")).to_be_visible()
    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied == page.locator(".plain").text_content() != ""


def test_engine_that_dies_costs_one_answer(page, app):
    decode_plainly(page)
    write(page, LONG)
    expect(page.locator(".running")).to_contain_text("Writing")
    app.engine.kill()
    expect(page.locator(".problem")).to_be_visible()
    write(page, "Hello!")
    answered(page, 1)


@pytest.mark.parametrize(("scheme", "viewport"), [("light", WIDE), ("dark", NARROW)])
def test_no_serious_accessibility_violation(app, browser, scheme, viewport):
    with visiting(browser, app, color_scheme=scheme, viewport=viewport) as page:
        found = {"welcome": violations(page)}
        write(page, "What is 12 + 30?")
        answered(page, 1)
        found["answer"] = violations(page)
        button(page, "Settings")
        found["settings"] = violations(page)
        page.keyboard.press("Escape")  # the settings lie over the tabs where it is narrow
        for tab in (tab.name for tab in TABS if tab.name != "Chat"):
            page.get_by_role("tab", name=tab).click()
            expect(page.locator(".screen h2:visible").first).to_be_visible()
            found[tab] = violations(page)
    assert not any(found.values()), found
