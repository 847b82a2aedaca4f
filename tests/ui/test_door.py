"""The page where a key is asked for: nothing of it without one, and two keys that never meet."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import httpx
import pytest
from playwright.sync_api import Browser, Page, expect

from app.bench.compare.race import Race, RaceOptions
from app.history.store import History
from app.keys.key_file import Keys
from app.keys.visits import Limits
from app.server.app import create_app
from app.server.door import Access
from tests.app import fake_engine
from tests.app.assisted import assisted
from tests.app.asynchronous import asynchronous
from tests.app.server.sweep import HOST, bearer, sweep
from tests.ui.application import Application, application, run
from tests.ui.browser import answered, button, violations, write
from tests.ui.paged import Page as FakePage
from ui import page as blocks
from ui.chat.actions import ACTIONS
from ui.chat.page_session import Pages
from ui.compare.tab import ComparePage
from ui.history.tab import HistoryPage
from ui.tab import Command, Visitor

SECRET = "What is 17 + 25?"


@asynchronous
async def test_law_every_route_of_the_page_is_refused_without_a_valid_key(tmp_path: Path) -> None:
    keys = Keys(tmp_path / "keys.json")
    valid, withdrawn = keys.add("anna"), keys.add("gone")
    keys.remove("gone")
    async with assisted(tmp_path) as assistant:
        app = create_app(assistant, HOST, access=Access(keys, blocks.login))
        blocks.mount(app, blocks.build(assistant, closed=True), closed=True)
        asked = await sweep(app, withdrawn, valid)
        own = {
            "queue/join",
            "queue/data",
            "upload",
            "file=x",
            "heartbeat/x",
            "startup-events",
            "info",
        }
        missing = {f"/gradio_api/{each}" for each in own} - {*asked}
        assert not missing
        assert {"/", "/help", "/config", "/theme.css", "/assets/x", "/static/x"} <= {*asked}
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url=f"http://{HOST}") as client:
            form = await client.get("/", headers={"accept": "text/html"})
            page = await client.get("/", headers=bearer(valid))
            for path in ("file=/etc/passwd", "file/x", "upload_progress?upload_id=x"):
                shared = await client.get(f"/gradio_api/{path}", headers=bearer(valid))
                assert shared.status_code == 401, path
            sent = await client.post(
                "/gradio_api/upload", headers=bearer(valid), files={"files": b"x"}
            )
            assert sent.status_code == 401
    assert form.status_code == 401
    assert 'name="key"' in form.text
    assert "http" not in form.text.replace("http://www.w3.org", "")  # it loads nothing
    assert '"username":"anna"' in page.text
    assert valid not in page.text


# --- what two keys see of each other --------------------------------------------------------------


@asynchronous
async def test_law_a_page_shows_and_changes_nothing_of_another_key(tmp_path: Path) -> None:
    async with assisted(tmp_path, fake_engine.endless) as assistant:
        pages = Pages(assistant, ACTIONS)
        anna, ben, here = (
            FakePage(pages.open(Visitor("", owner))) for owner in ("anna", "ben", None)
        )
        anna.do("send", text="my secret")
        await anna.until(lambda: anna.state["tokens"] > 3)
        hers = anna.state["conversation"]
        await here.until(lambda: "my secret" in here.regions["side"])
        await ben.until(lambda: "Your conversations appear here" in ben.regions["side"])
        for command in ("open", "export-json", "export-markdown", "delete", "rename", "pin"):
            ben.do(command, id=hers, text="x")
            await ben.until(lambda: "holds no conversation" in ben.regions["notice"])
            assert ben.state["conversation"] == ""
            assert "secret" not in f"{ben.regions}"
            ben.do("settings")
            await ben.until(lambda: not ben.regions["notice"])
        ben.do("hello", id=hers)  # the address of her conversation
        ben.do("search", text="secret")
        await ben.until(lambda: "No conversation has these words" in ben.regions["side"])
        assert ben.state["conversation"] == ""
        assert assistant.running(hers) is not None  # nothing of this has stopped her answer
        assert assistant.history.conversation(hers).title == "my secret"
        anna.do("stop")
        await anna.until(lambda: not anna.state["busy"])
        for page in (anna, ben, here):
            await page.close()


@asynchronous
async def test_files_that_wait_in_one_tab_are_not_another_keys(tmp_path: Path) -> None:
    async with assisted(tmp_path) as assistant:
        pages = Pages(assistant, ACTIONS)
        anna = FakePage(pages.open(Visitor("1", "anna")))
        anna.do("hello", name="the tab")
        anna.do("attach", name="a.txt", data="c2VjcmV0")
        await anna.until(lambda: "a.txt" in anna.regions["chips"])
        ben, again = (
            FakePage(pages.open(Visitor("1", "ben"))),
            FakePage(pages.open(Visitor("1", "anna"))),
        )
        for page in (ben, again):
            page.do("hello", name="the tab")
            await page.until(lambda page=page: page.state["taken"] or page.state["ready"])
        await again.until(lambda: "a.txt" in again.regions["chips"])
        assert "a.txt" not in ben.regions["chips"]
        for page in (anna, ben, again):
            await page.close()


@asynchronous
async def test_an_answer_of_the_page_counts_as_a_request_of_its_key(tmp_path: Path) -> None:
    keys, limits = Keys(tmp_path / "keys.json"), Limits()
    key = keys.find(keys.add("anna", at_a_time=1))
    async with assisted(tmp_path, fake_engine.endless) as assistant:
        pages = Pages(assistant, ACTIONS)
        one, other = (FakePage(pages.open(Visitor("", "anna", partial(limits.begin, key)))) for _ in range(2))  # fmt: skip
        one.do("send", text="count")
        await one.until(lambda: one.state["tokens"] > 3)
        other.do("send", text="and I?")
        await other.until(lambda: "1 request at a time" in other.regions["notice"])
        assert other.state["once"]["box"] == "and I?"
        assert len(assistant.history.conversations()) == 1
        one.do("stop")
        await one.until(lambda: not one.state["busy"])
        other.do("send", text="and I?")
        await other.until(lambda: other.state["tokens"] > 3)
        for page in (one, other):
            await page.close()


@asynchronous
async def test_a_race_shows_its_prompt_to_its_key_only(tmp_path: Path) -> None:
    async with assisted(tmp_path) as assistant:
        race = Race("fake", RaceOptions("my secret", (), owner="anna"), lambda: None)
        service = SimpleNamespace(
            assistant=assistant, race=race, kept=None, racing=False, measuring=False, busy=False,
            waiting=False, benchmark=None, saved=(), problem="", latest=Race, version=0,
        )  # fmt: skip
        shown = {
            owner: f"{await ComparePage(service, owner).values()}"
            for owner in ("anna", "ben", None)
        }
    assert "my secret" in shown["anna"]
    assert "my secret" in shown[None]
    assert "my secret" not in shown["ben"]


@asynchronous
async def test_the_database_is_for_this_machine(tmp_path: Path) -> None:
    history = History.open(tmp_path / "history.db")
    page = HistoryPage(history, "anna")
    await page.visit()
    assert "Back up" not in (await page.values())["body"]
    for command in ("backup", "check"):
        await page.receive(Command(command=command))
        body = (await page.values())["body"]
        assert f"cannot do &#x27;{command}&#x27;" in body
        assert str(tmp_path) not in body
    assert not (tmp_path / "backups").exists()
    history.close()


# --- the real command and a real browser ----------------------------------------------------------


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def made(home: Path) -> dict[str, str]:
    return {name: run(home, "keys", "add", name).stdout.strip() for name in ("anna", "ben")}


@pytest.fixture(scope="module")
def closed(home: Path, made: dict[str, str]) -> Iterator[Application]:
    with application(home, "--require-key", "--log-level", "debug", "--access-log") as running:
        yield running


def log_in(page: Page, app: Application, key: str) -> None:
    page.goto(app.address)
    enter(page, key)


def enter(page: Page, key: str) -> None:
    page.get_by_label("API key").fill(key)
    page.get_by_role("button", name="Log in").click()


@pytest.mark.browser
def test_log_in_chat_and_log_out(
    browser: Browser, closed: Application, home: Path, made: dict[str, str]
) -> None:
    anna, ben = browser.new_context().new_page(), browser.new_context().new_page()
    refused: list[str] = []
    ben.on("response", lambda answer: answer.status < 400 or refused.append(answer.url))
    log_in(anna, closed, "wrong")
    expect(anna.get_by_role("alert")).to_contain_text("does not exist, or was withdrawn")
    assert violations(anna) == []
    log_in(anna, closed, made["anna"])
    anna.wait_for_selector("#page.ready")
    write(anna, SECRET)
    answered(anna, 1)
    address = anna.url
    log_in(ben, closed, made["ben"])
    refused.clear()
    ben.wait_for_selector("#page.ready")
    expect(ben.locator("#side .none")).to_be_visible()
    assert refused == []
    ben.goto(address)
    ben.reload()
    ben.wait_for_selector("#page.ready")
    expect(ben.locator(".card")).to_have_count(3)
    assert "17 + 25" not in ben.content()
    cookies = [one for one in anna.context.cookies() if one["httpOnly"]]
    assert [one["sameSite"] for one in cookies] == ["Strict"]
    assert all(key not in anna.content() for key in made.values())
    # withdrawn by the command, while the page is open: the form comes without a click
    assert run(home, "keys", "remove", "anna").returncode == 0
    expect(anna.get_by_label("API key")).to_be_visible()
    anna.reload()
    expect(anna.get_by_label("API key")).to_be_visible()
    button(ben, "Log out")
    expect(ben.get_by_label("API key")).to_be_visible()
    ben.goto(f"{closed.address}/#models")
    enter(ben, made["ben"])  # what was asked for
    expect(ben.get_by_role("tab", name="Models")).to_have_attribute("aria-selected", "true")
    for page in (anna, ben):
        page.context.close()


def test_no_key_is_anywhere_in_the_home(
    closed: Application, home: Path, made: dict[str, str]
) -> None:
    url = f"{closed.address}/v1/chat/completions"
    for key, headers in ((key, bearer(key)) for key in made.values()):
        httpx.post(url, headers=headers, json={"model": key, "messages": [], "stop": 1})
        httpx.get(f"{closed.address}/v1/models", headers={"x-api-key": key})
    assert (home / "keys.json").stat().st_mode & 0o777 == 0o600
    files = [path for path in home.rglob("*") if path.is_file()]
    assert len(files) > 3
    found = [
        path for path in files if any(key.encode() in path.read_bytes() for key in made.values())
    ]
    assert found == []
