"""A real Chromium at the running application, and what every story does with it."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from playwright.sync_api import Browser, Locator, Page, expect, sync_playwright

from tests.ui.application import Application

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


@contextmanager
def chromium(path: str) -> Iterator[Browser]:
    """The browser, for several pages; while it is open, no test of this thread can use asyncio."""
    expect.set_options(timeout=60_000)  # a busy machine may read a long prompt for seconds
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=QUIET)
        yield browser
        browser.close()


@contextmanager
def another(browser: Browser, path: str) -> Iterator[Browser]:
    """A second browser: a window under another may leave what is done in it unanswered."""
    second = browser.browser_type.launch(executable_path=path, args=QUIET)
    try:
        yield second
    finally:
        second.close()


@contextmanager
def visiting(
    browser: Browser, app: Application, *, script: str = "", **options: Any
) -> Iterator[Page]:
    """The open page; at the end, nothing may have left this machine or gone wrong in it.

    ``script`` runs before those of the page.
    """
    complaints: list[str] = []
    local = (app.address, "data:", f"blob:{app.address}")
    context = browser.new_context(
        permissions=["clipboard-read", "clipboard-write"], accept_downloads=True, **options
    )
    context.set_default_timeout(60_000)
    context.on("request", lambda r: r.url.startswith(local) or complaints.append(r.url))
    context.on("console", lambda m: m.type != "error" or complaints.append(m.text))
    context.on("weberror", lambda error: complaints.append(str(error.error)))
    try:
        page = context.new_page()
        page.add_init_script(script)
        page.goto(app.address)
        page.wait_for_selector("#page.ready")
        yield page
    finally:
        context.close()
    problems = complaints + _links_to_elsewhere(app)
    assert not problems, problems


def _links_to_elsewhere(app: Application) -> list[str]:
    links = [link for process in app.family for link in process.net_connections()]
    return [str(link) for link in links if link.raddr and link.raddr.ip != "127.0.0.1"]


def violations(page: Page) -> list[object]:
    """What axe-core finds serious on the page."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    found = axe.Axe().run(page).response["violations"]
    serious = [one for one in found if one["impact"] in ("serious", "critical")]
    return [(one["id"], [node["html"][:200] for node in one["nodes"][:3]]) for one in serious]


def button(page: Page, name: str) -> None:
    page.get_by_role("button", name=name, exact=True).last.click()


def write(page: Page, text: str) -> None:
    page.get_by_label("Your message").fill(text)
    page.keyboard.press("Enter")


def answered(page: Page, count: int) -> None:
    try:
        expect(page.locator(".caption .figures")).to_have_count(count)
    except AssertionError as error:  # what came instead tells why
        state = page.locator("#state [data-state]").get_attribute("data-state")
        shown = page.locator("#talk").inner_text()[-600:]
        raise AssertionError(f"{error}\nthe page: {state}\n{shown}") from error
    expect(page.get_by_role("button", name="Send")).to_be_visible()


def decode_plainly(page: Page) -> None:
    """Drafted, the long answer is over in two seconds, before a busy browser has looked."""
    page.get_by_label("Speed").select_option("none")


def choose(page: Page, item: Locator, *acts: str) -> None:
    """Something out of the menu of one conversation of the list."""
    item.hover()
    item.locator(".more").click()
    for act in acts:
        page.locator("#menu").get_by_role("button", name=act, exact=True).click()
