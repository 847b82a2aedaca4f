"""Stories of the models tab in a real browser, against a stand-in for the hub on real sockets."""

import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from tests.app.models.downloads.hub import Fixed, Repo, StandInHub
from tests.ui.application import ROOT, Application, application
from tests.ui.browser import answered, button, violations, visiting, write

pytestmark = pytest.mark.browser

MB = 1_000_000
BUNDLED = ROOT / "engine" / "bundled"
TARGET, DRAFT = "HuggingFaceTB/SmolLM2-360M-Instruct", "HuggingFaceTB/SmolLM2-135M-Instruct"


@dataclass(frozen=True)
class World:
    """A running Slipstream, the hub that it knows, and a folder of the person's own."""

    app: Application
    hub: StandInHub
    folder: Path


def model(name: str = "pocket-draft") -> Repo:
    """A bundled model as a repository of the hub."""
    kinds = (".json", ".safetensors", ".jinja")
    files = [file for file in (BUNDLED / name).iterdir() if file.suffix in kinds]
    return Repo({file.name: Fixed(file.read_bytes()) for file in files})


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("world")
    repos = {TARGET: model("pocket"), DRAFT: model()}
    repos |= {f"org/{name}": model() for name in ("paused", "killed", "cancelled")}
    repos["org/gated"] = replace(model(), gated=True)
    with StandInHub(repos).running() as hub, pytest.MonkeyPatch.context() as patch:
        set_up(patch, hub, folder)
        with application(folder) as app:
            yield World(app, hub, folder)


def set_up(patch: pytest.MonkeyPatch, hub: StandInHub, folder: Path) -> None:
    patch.setenv("HF_ENDPOINT", hub.url)
    patch.delenv("HF_TOKEN", raising=False)
    for name in ("HF_HUB_CACHE", "LMSTUDIO_MODELS", "OLLAMA_MODELS"):
        patch.setenv(name, str(folder / name))


@pytest.fixture
def page(world: World, browser: Browser) -> Iterator[Page]:
    world.hub.rate, world.hub.faults = 0, []
    with visiting(browser, world.app) as opened:
        models(opened)
        yield opened


def models(page: Page) -> None:
    page.get_by_role("tab", name="Models").click()
    expect(page.get_by_role("heading", name="On this computer", exact=True)).to_be_visible()
    # then what the visit found is drawn, and nothing is drawn again under a click
    page.wait_for_function(
        "JSON.parse(document.querySelector('[data-models]').dataset.models).done"
    )


def find(page: Page, hub: StandInHub, repo: str) -> None:
    """Search the hub for ``repo`` and look whether it fits."""
    hub.rows = [{"id": repo, "tags": ["safetensors"], "downloads": 7}]
    page.get_by_label("Search models").fill(repo.rpartition("/")[2])
    page.keyboard.press("Enter")
    page.get_by_role("button", name=f"Does it fit?: {repo}").click()


def get(page: Page, hub: StandInHub, repo: str) -> Locator:
    """Its line in the tray."""
    find(page, hub, repo)
    page.locator(f"[data-row='{repo}']").get_by_role("button", name="Get ").click()
    return download(page, repo.rpartition("/")[2])


def download(page: Page, name: str) -> Locator:
    return page.locator(f"[data-download='{name}']")


def row(page: Page, name: str) -> Locator:
    return page.locator(f"#models-here [data-row='{name}']")


def wait_for(seen: Callable[[], bool]) -> None:
    end = time.monotonic() + 20
    while not seen():
        assert time.monotonic() < end, "it never came to that"
        time.sleep(0.01)


def test_one_button_gets_a_model_with_its_draft_and_it_answers(page, world):
    assert world.hub.requests == [], "the hub was asked before a person wanted something"
    offer = page.locator("#models-list [data-row='smollm2-360m-instruct']")
    expect(offer).to_contain_text("with its draft, 256.6 MiB")
    expect(offer.locator("summary")).to_contain_text("Auto")
    offer.get_by_role("button", name="Get ").click()
    for name in ("smollm2-360m-instruct", "smollm2-135m-instruct"):
        expect(download(page, name)).to_contain_text("Ready")
        expect(row(page, name)).to_be_visible()
    expect(offer).to_have_count(0)
    download(page, "smollm2-360m-instruct").get_by_role("button", name="Use it").click()
    expect(row(page, "smollm2-360m-instruct")).to_contain_text("In use")
    expect(row(page, "smollm2-135m-instruct")).to_contain_text("In use")
    page.get_by_role("tab", name="Chat").click()
    expect(page.locator("#model")).to_have_value("smollm2-360m-instruct")
    write(page, "What is 12 + 30?")
    answered(page, 1)
    models(page)
    target = row(page, "smollm2-360m-instruct")
    target.get_by_role("button", name="Delete", exact=True).click()
    dialog = target.get_by_role("dialog")
    expect(dialog).to_contain_text("is in use: the bundled model is loaded in its place first")
    expect(dialog).to_contain_text("That frees 20.")
    dialog.get_by_role("button", name="Delete: smollm2-360m-instruct").click()
    told = page.get_by_role("status").filter(has_text="Deleted smollm2-360m-instruct, 20.")
    expect(told).to_contain_text("are free again; the model that answers now is pocket.")
    expect(target).to_have_count(0)
    expect(row(page, "pocket")).to_contain_text("In use")
    button(page, "Delete its draft smollm2-135m-instruct too")
    expect(row(page, "smollm2-135m-instruct")).to_have_count(0)
    expect(offer).to_have_count(1)


def test_kill_restart_resume(browser, tmp_path, monkeypatch):
    weights = "org/killed/model.safetensors"
    with StandInHub({"org/killed": model()}, rate=MB / 8).running() as hub:
        set_up(monkeypatch, hub, tmp_path)
        with application(tmp_path) as app:
            with visiting(browser, app) as page:
                models(page)
                expect(get(page, hub, "org/killed")).to_contain_text("/s")
            sent = hub.sent[weights]
            wait_for(lambda: hub.sent[weights] > sent + MB / 5)  # goes on when nobody looks
            app.process.send_signal(signal.SIGKILL)
            app.process.wait(10)
        asked = len(hub.requests)
        hub.rate = 0
        with application(tmp_path) as app, visiting(browser, app) as page:
            models(page)
            expect(download(page, "killed")).to_contain_text("Paused")
            assert len(hub.requests) == asked, "the network waits for a person"
            download(page, "killed").get_by_role("button", name="Resume").click()
            expect(download(page, "killed")).to_contain_text("Ready")
            expect(row(page, "killed")).to_be_visible()
        assert any(request.range for request in hub.fetched()), "it went on where it was"
        size = model().files["model.safetensors"].size
        assert hub.sent[weights] < 1.3 * size, "what had arrived came again"


def test_a_gated_model_asks_for_a_token(page, world):
    line = get(page, world.hub, "org/gated")
    expect(line.get_by_role("alert")).to_contain_text("is gated; open http://127.0.0.1")
    line.get_by_label("Hugging Face token").fill(world.hub.token)
    line.get_by_role("button", name="Keep the token").click()
    expect(line).to_contain_text("Ready")
    kept = world.folder / "hub-token"
    assert kept.stat().st_mode & 0o777 == 0o600
    assert world.hub.token not in page.content()
    page.get_by_text("Token for gated models").click()
    button(page, "Forget it")
    expect(page.get_by_role("status").filter(has_text="forgotten")).to_be_visible()
    assert not kept.exists()


def test_pause_resume_cancel_and_nothing_jumps(page, world):
    world.hub.rate = MB / 3
    line = get(page, world.hub, "org/paused")
    expect(line).to_contain_text("left")
    others = page.locator("#models-here [data-row='pocket']"), line
    before = [one.bounding_box() for one in others]
    bar = line.get_by_role("progressbar")
    share = int(bar.get_attribute("aria-valuenow") or 0)
    page.wait_for_function(
        "([bar, share]) => Number(bar.getAttribute('aria-valuenow')) > share",
        arg=[bar.element_handle(), share],
    )
    assert [one.bounding_box() for one in others] == before
    line.get_by_role("button", name="Pause").click()
    expect(line).to_contain_text("Paused")
    world.hub.rate = 0
    line.get_by_role("button", name="Resume").click()
    expect(line).to_contain_text("Ready")
    world.hub.rate = MB / 3
    line = get(page, world.hub, "org/cancelled")
    expect(line).to_contain_text("left")
    line.get_by_role("button", name="Cancel").click()
    expect(line).to_have_count(0)
    wait_for(lambda: not (world.folder / "models" / ".incomplete" / "cancelled").exists())


def test_import_by_path(page, tmp_path):
    bad = tmp_path / "bad.gguf"
    bad.write_bytes(b"GGUF" + bytes(100))
    folder = tmp_path / "mine"
    folder.mkdir()
    for file in (BUNDLED / "pocket-draft").iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    page.get_by_text("Add a model from a disk").click()
    place = page.get_by_label("Path of a folder or of a GGUF file")
    for path, said in ((bad, "bad.gguf"), (tmp_path / "none", "There is no file or folder")):
        place.fill(str(path))
        page.keyboard.press("Enter")
        expect(page.get_by_role("alert")).to_contain_text(said)
    expect(row(page, "bad")).to_have_count(0)
    place.fill(str(folder))
    page.keyboard.press("Enter")
    expect(page.get_by_role("status").filter(has_text="Added mine.")).to_be_visible()
    expect(row(page, "mine")).to_be_visible()


def test_models_of_other_programs_are_offered(world, browser):
    root = world.folder / "HF_HUB_CACHE" / "models--org--cached"
    snapshot = root / "snapshots" / ("c" * 40)
    snapshot.mkdir(parents=True)
    for file in (BUNDLED / "pocket-draft").iterdir():
        (snapshot / file.name).write_bytes(file.read_bytes())
    with visiting(browser, world.app) as page:
        models(page)
        offer = page.locator(
            "#models-here [data-row$='cached'], #models-here [data-row*='--cached']"
        )
        expect(offer).to_contain_text("Hugging Face cache")
        offer.get_by_role("button", name="Add").click()
        expect(row(page, "cached")).to_be_visible()
        expect(page.get_by_role("heading", name="In other programs")).to_have_count(0)


def test_filter_search_and_the_best_for_this_computer(page, world):
    offers = page.locator("#models-list li[data-row]:visible")
    expect(page.get_by_role("heading", name="Best for this computer")).to_be_visible()
    asked = len(world.hub.requests)
    page.get_by_label("Search models").fill("qwen3-4b qwen")
    expect(offers).to_have_count(2)
    button(page, "GGUF")
    expect(offers).to_have_count(1)
    expect(offers).to_contain_text("qwen3-4b-q4")
    offers.locator("summary").click()
    expect(offers).to_contain_text("has the same vocabulary and fits next to it")
    page.get_by_label("Search models").fill("no such model")
    expect(page.get_by_text("No model of the catalogue has these words.")).to_be_visible()
    assert len(world.hub.requests) == asked
    world.hub.rows = []
    button(page, "Search Hugging Face")
    expect(page.get_by_text("No text model that could run here has these words.")).to_be_visible()
    assert len(world.hub.requests) == asked + 1


def test_a_list_drawn_again_keeps_what_was_unfolded_and_the_keyboards_place(page, world):
    got, kept = "smollm2-135m-instruct", "smollm3-3b"
    listed = "#models-list [data-row='{}']".format
    page.get_by_label("Search models").fill("l")
    shown = page.locator("#models-list li[data-row]:visible")
    count = shown.count()
    page.locator(f"{listed(kept)} summary").click()
    page.locator(listed(kept)).get_by_role("button", name="Get ").focus()
    other = page.context.new_page()  # another window takes a row away above it
    other.goto(world.app.address)
    models(other)
    other.locator(listed(got)).get_by_role("button", name="Get ").click()
    expect(row(page, got)).to_be_visible()
    expect(page.locator(listed(got))).to_have_count(0)
    expect(shown).to_have_count(count - 1)
    unfolded = page.locator("#models-list details.how[open]")
    expect(unfolded).to_have_count(1)
    assert unfolded.evaluate("how => how.closest('li').dataset.row") == kept
    focus = "[document.activeElement.tagName, document.activeElement.closest('li').dataset.row]"
    assert page.evaluate(focus) == ["BUTTON", kept]
    row(other, got).get_by_role("button", name="Delete", exact=True).click()
    row(other, got).get_by_role("button", name=f"Delete: {got}").click()
    expect(page.locator(listed(got))).to_have_count(1)


def test_accessible_with_everything_open(page, world):
    world.hub.rate = MB / 10
    page.get_by_text("Add a model from a disk").click()
    page.get_by_text("Token for gated models").click()
    line = get(page, world.hub, "org/killed")
    expect(line).to_contain_text("left")
    assert violations(page) == []
    line.get_by_role("button", name="Cancel").click()
    expect(line).to_have_count(0)
