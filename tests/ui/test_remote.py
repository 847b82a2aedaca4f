"""A person logs in, chats with a model on another engine, which goes away, and goes on with the local one."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.app.remote.far import KEY, LOCAL, NAME
from tests.app.remote.stub import MODEL, Stub, engine
from tests.app.remote.words import say
from tests.ui.application import Application, application, run
from tests.ui.browser import answered, violations, write
from tests.ui.test_door import log_in
from tests.waiting import wait_for

FAR = f"{NAME}/{MODEL}"
AWAY = f'#model optgroup[label="On another engine: {NAME}"] option'


@pytest.fixture
def office() -> Iterator[Stub]:
    with engine("vllm", KEY) as stub:
        yield stub


@pytest.fixture
def home(tmp_path: Path, office: Stub, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home with an engine in its config.toml, whose key is in the environment."""
    config = tmp_path / "config.toml"
    config.write_text(
        f'[engines.{NAME}]\nbackend = "openai"\naddress = "{office.address}"\nkey = "env:OFFICE_KEY"\n'
    )
    monkeypatch.setenv("SLIPSTREAM_CONFIG", str(config))
    monkeypatch.setenv("OFFICE_KEY", KEY)
    (tmp_path / "home").mkdir()
    return tmp_path / "home"


@pytest.fixture
def key(home: Path) -> str:
    return run(home, "keys", "add", "anna").stdout.strip()


@pytest.fixture
def app(home: Path, key: str) -> Iterator[Application]:
    with application(home, "--require-key", "--log-level", "debug") as running:
        yield running


def assert_no_key(home: Path) -> None:
    files = [path for path in home.rglob("*") if path.is_file()]
    assert len(files) > 3
    assert [path for path in files if KEY.encode() in path.read_bytes()] == []


def choose(page: Page, model: str) -> None:
    page.locator("#model").select_option(model)
    expect(page.locator("#model")).to_have_value(model)
    expect(page.get_by_role("button", name="Send")).to_be_visible()


@pytest.mark.browser
def test_a_remote_model_goes_away_in_the_middle(
    browser: Browser, app: Application, office: Stub, home: Path, key: str
) -> None:
    page = browser.new_context().new_page()
    log_in(page, app, key)
    page.wait_for_selector("#page.ready")
    offered = page.locator("#model option")
    expect(offered).to_have_count(1 + len(office.models))
    expect(page.locator(AWAY)).to_have_count(len(office.models))
    assert office.asked == []  # nothing is sent before a person chooses it

    choose(page, FAR)
    expect(page.locator("#mode")).to_be_disabled()  # it drafts in its own way
    expect(page.locator(".away")).to_contain_text(NAME, ignore_case=True)
    expect(page.locator("#welcome")).to_contain_text("is sent to another engine")
    write(page, "What is 17 + 25?")
    answered(page, 1)
    [sent] = [seen for seen in office.asked if "17 + 25" in f"{seen.body['messages']}"]
    said = "".join(say(sent.body, 0, thinks=False, words=None).content)
    assert max(said.split(), key=len) in page.locator("#talk").inner_text()
    expect(page.locator(".caption").first).to_contain_text(FAR)
    assert violations(page) == []

    office.words, office.pace = 3000, 0.05
    write(page, "And 3 more?")
    wait_for(lambda: any("3 more" in f"{seen.body}" for seen in office.asked))
    expect(page.get_by_role("button", name="Stop")).to_be_visible()
    page.wait_for_timeout(1000)
    office.stop()
    expect(page.locator("#talk")).to_contain_text(re.compile(f"{NAME} .*{LOCAL}", re.IGNORECASE))
    expect(page.get_by_role("button", name="Send")).to_be_visible()

    choose(page, LOCAL)
    expect(page.locator("#mode")).to_be_enabled()
    expect(page.locator(".away")).to_have_count(0)
    write(page, "What is 40 + 2?")
    answered(page, 2)  # the one that broke off has no figures
    expect(page.locator(".caption").last).not_to_contain_text(NAME)
    assert KEY not in page.content()
    page.context.close()
    assert_no_key(home)


def test_a_terminal_asks_the_remote_model(home: Path, office: Stub) -> None:
    """``ask -m`` and ``models list`` know it; the key is in nothing that is printed."""
    asked = run(home, "ask", "--model", FAR, "What is 17 + 25?")
    assert asked.returncode == 0, asked.stderr
    [sent] = office.asked
    assert "".join(say(sent.body, 0, thinks=False, words=None).content).strip() in asked.stdout
    office.stop()
    refused = run(home, "ask", "--model", FAR, "What is 17 + 25?")
    assert refused.returncode != 0
    assert NAME in refused.stderr
    assert len(refused.stderr.strip().splitlines()) == 1
    shown = run(home, "config")
    assert NAME in shown.stdout
    for said in (asked, refused, shown):
        assert KEY not in said.stdout + said.stderr
