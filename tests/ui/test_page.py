"""Stories in a real browser: open, ask, see the stream, stop, ask again, start anew."""

import shutil
from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect, sync_playwright

from tests.ui.application import Application

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
QUIET = (  # the browser itself asks nobody
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
)
LONG = "Repeat this text exactly:\n" + "Anna has a red hat and Ben has a blue boat. " * 60

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium (apt-get install chromium)"),
]


@pytest.fixture
def page(app: Application) -> Iterator[Page]:
    """The open page; at the end, nothing may have left this machine or gone wrong in it."""
    complaints: list[str] = []
    expect.set_options(timeout=20_000)  # a busy machine may read a long prompt for seconds
    local = (app.address, "data:", "blob:")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=QUIET)
        page = browser.new_page(permissions=["clipboard-read", "clipboard-write"])
        page.on("request", lambda r: r.url.startswith(local) or complaints.append(r.url))
        page.on("console", lambda m: m.type != "error" or complaints.append(m.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.goto(app.address)
        yield page
        browser.close()
    assert complaints + links_to_elsewhere(app) == []


def links_to_elsewhere(app: Application) -> list[str]:
    links = [link for process in app.family for link in process.net_connections()]
    return [str(link) for link in links if link.raddr and link.raddr.ip != "127.0.0.1"]


def button(page: Page, name: str) -> None:
    page.get_by_role("button", name=name, exact=True).click()


def decode_plainly(page: Page) -> None:
    """Drafted, the long answer is over in two seconds, before a busy browser has looked."""
    button(page, "Settings ▼")
    page.get_by_label("Plain").check()


def write(page: Page, text: str) -> None:
    page.get_by_label("Your message").fill(text)
    page.keyboard.press("Enter")


def test_story_of_a_chat(page: Page) -> None:
    said, caption = page.locator(".said"), page.locator(".caption")
    answer, box = page.locator("#rows .bot-row").first, page.get_by_label("Your message")
    expect(page).to_have_title("Slipstream")
    expect(page.locator("#masthead")).to_contain_text("on this computer")
    expect(page.locator("#rows .example")).to_have_count(3)

    decode_plainly(page)
    write(page, LONG)
    expect(said).to_have_text(LONG)
    expect(box).to_have_value("")
    expect(caption).to_contain_text("Writing")
    begun = answer.inner_text()
    box.fill("the next thought")
    expect(answer).not_to_have_text(begun)

    button(page, "Stop")
    expect(caption).to_contain_text("Stopped by you")
    expect(caption).to_contain_text("Plain")
    expect(page.get_by_role("button", name="Send")).to_be_visible()
    expect(box).to_have_value("the next thought")
    assert answer.inner_text()

    button(page, "Regenerate")
    expect(caption).to_contain_text("Writing")
    expect(said).to_have_count(1)
    button(page, "Stop")
    expect(caption).to_contain_text("Stopped by you")


def test_new_chat_starts_empty_even_while_an_answer_runs(page: Page) -> None:
    decode_plainly(page)
    write(page, LONG)
    expect(page.locator(".caption")).to_contain_text("Writing")
    button(page, "New chat")
    expect(page.locator("#rows .example")).to_have_count(3)
    write(page, "Hello!")
    expect(page.locator(".said")).to_have_text("Hello!")
    expect(page.locator(".caption")).to_contain_text("tokens per pass")
    expect(page.locator(".caption")).to_contain_text("tokens/s")


def test_what_is_said_is_shown_letter_by_letter(page: Page) -> None:
    text = "${7*7} {{7*7}} <b>x</b> &amp; *y*\n    indented <img src=x onerror=alert(1)>"
    write(page, text)
    expect(page.locator(".said")).to_have_text(text, use_inner_text=True)
    expect(page.locator(".caption")).to_contain_text("tokens per pass")
    button(page, "Copy this answer")
    expect(page.locator(".copied")).to_be_visible()
    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied == page.locator(".plain").text_content() != ""


def test_what_cannot_be_answered_is_said_in_place_and_kept(page: Page) -> None:
    alert = page.get_by_role("alert")
    write(page, " ")
    expect(alert).to_have_text("Write something first.")
    write(page, "word " * 5000)
    expect(alert).to_contain_text("4096")
    expect(page.get_by_label("Your message")).to_have_value("word " * 5000)
    expect(page.locator(".said")).to_have_count(0)


def test_engine_that_dies_costs_one_answer(page: Page, app: Application) -> None:
    caption = page.locator(".caption")
    decode_plainly(page)
    write(page, LONG)
    expect(caption).to_contain_text("Writing")
    app.engine.kill()
    expect(caption.locator(".problem")).to_be_visible()
    assert page.locator("#rows .bot-row").first.inner_text()
    write(page, "Hello!")
    expect(caption).to_have_count(2)
    expect(caption.last).to_contain_text("tokens per pass", timeout=30_000)
