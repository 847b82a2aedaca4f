"""Stories of the hardware tab: what was found, why each model runs as it does, what if."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from tests.ui.application import Application
from tests.ui.browser import button, visiting
from tests.ui.lived_in import WIDE

pytestmark = pytest.mark.browser


@pytest.fixture
def page(lived_in: Application, browser: Browser) -> Iterator[Page]:
    with visiting(browser, lived_in) as opened:
        opened.get_by_role("tab", name="Hardware").click()
        expect(opened.get_by_role("heading", name="Well-known models")).to_be_visible()
        yield opened


def _row(page: Page, name: str) -> Locator:
    return page.locator("#hardware details", has=page.get_by_text(name, exact=True))


def test_what_was_found_and_how_fast_it_is(page):
    found = page.locator("#hardware-found")
    expect(found).to_contain_text("memory free, of")
    expect(found).to_contain_text("core")
    expect(found).to_contain_text("Not measured on this machine yet")
    button(page, "Measure its speed")
    expect(page.locator("#hardware .result")).to_contain_text("Measuring")
    expect(found.locator(".pairs")).to_contain_text("GiB/s")
    expect(page.get_by_role("button", name="Measure again")).to_be_enabled()


def test_an_installed_model_gives_a_reason_for_every_choice(page):
    expect(_row(page, "pocket")).to_contain_text("all in RAM")
    row = _row(page, WIDE)
    expect(row.get_by_text("Draft model", exact=True)).to_be_hidden()
    row.locator("summary").click()
    for choice in ("Runs with", "Numbers", "Layers", "Drafting", "Draft model", "Context"):
        expect(row.get_by_text(choice, exact=True)).to_be_visible()
    expect(row).to_contain_text("No draft model is paired with this model.")
    expect(row.locator("tbody tr").first).to_be_visible()


def test_sliders_by_keyboard_plan_again_and_keep_what_is_open(page):
    row = _row(page, WIDE)
    row.locator("summary").click()
    before = row.locator(".tag").inner_text()
    gpu = page.get_by_role("slider", name="GPU memory")
    gpu.press("End")
    expect(gpu).to_have_attribute("aria-valuetext", "96 GiB")
    expect(row.locator(".tag")).to_have_text("all on the GPU")
    expect(row).to_contain_text(f"here: {before}")
    expect(row).to_contain_text("Passes run on the GPU.")
    expect(gpu).to_be_focused()
    button(page, "Back to this machine")
    expect(row.locator(".tag")).to_have_text(before)
    expect(row).not_to_contain_text("here:")


def test_too_little_memory_says_what_is_needed_and_what_there_is(page):
    row = _row(page, "llama-3.3-70b-q4")
    page.get_by_role("slider", name="GPU memory").press("Home")
    page.get_by_role("slider", name="RAM").press("Home")
    expect(row.locator(".tag")).to_have_text("does not run")
    row.locator("summary").click()
    expect(row).to_contain_text("are free: choose a smaller model")
