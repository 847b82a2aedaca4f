"""The compare tab: what its parts say, and stories of it in a real browser with the real model."""

import json
import re
import struct
from collections.abc import Iterator
from dataclasses import replace
from xml.etree import ElementTree as Xml

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from app.bench.compare.benchmark import SIZES
from app.bench.compare.race import Race, RaceOptions, results
from app.bench.compare.record import BenchmarkRecord, Figures, LaneRecord
from app.bench.lanes import Lane
from app.bench.measure import Difference, Measurement, find_difference
from app.bench.options import Conditions
from tests.app.bench.samples import watched
from tests.ui.application import Application
from tests.ui.browser import LONG, answered, button, violations, visiting, write
from ui.compare.benchmark import INTRODUCTION
from ui.compare.card import card, summary
from ui.compare.plots import acceptance, progress
from ui.compare.race import answers, verdict

WORDS = tuple(range(12))
SLOW = 150_000  # ms: a race takes seconds, but not on a machine that others use too


def over(*lanes: tuple[str, tuple[int, ...], float]) -> Race:
    """A race of one round that is over."""
    race = Race("pocket", RaceOptions("a", tuple(name for name, _, _ in lanes)), lambda: None)
    samples = tuple(watched(*lane) for lane in lanes)
    differences: dict[str, Difference] = {}
    for sample in samples[1:]:
        if found := find_difference(samples[0], sample):
            differences[sample.lane] = replace(found, gap=0.125)
    names = tuple(Lane(name, name) for name, _, _ in lanes)
    measured = Measurement(names, Conditions(repeats=1), samples, differences)
    race.results = results(measured, lambda ids: f"<{ids[0]}>")
    return race


def test_a_verdict_names_the_fastest_and_that_the_tokens_agree():
    said = verdict(over(("none", WORDS, 10.0), ("lookup", WORDS, 25.0), ("chain", WORDS, 15.0)))
    assert "Lookup was 2.50 times as fast as plain" in said
    assert "Identical tokens" in said
    assert "warm-up that is not counted" in said


def test_a_verdict_hides_neither_a_slow_mode_nor_a_difference():
    other = (*WORDS[:3], 99, *WORDS[4:])
    said = verdict(over(("none", WORDS, 10.0), ("lookup", other, 8.0)))
    assert "No mode was faster than plain" in said
    assert "0.80\u00d7" in said
    assert "Identical" not in said
    assert "differs at token 4" in said
    assert "<q>&lt;3&gt;</q>" in said  # text of a model is never markup
    assert "differ by 0.125" in said


@pytest.mark.parametrize(
    ("texts", "shown"),
    [
        (("no formula", "no formula"), ""),
        (("\\(x < 1\\)", "\\(x < 1\\)"), "\ufdd2x < 1\ufdd3"),
        (("$a$ <b>", "$$c$$"), "\ufdd2a\ufdd3 &lt;b>\n\n---\n\n\ufdd0c\ufdd1"),
        (("`\\(code\\)`", "costs $5"), ""),
    ],
)
def test_formulas_are_drawn_below_the_lanes(texts, shown):
    race = over(("none", WORDS, 10.0), ("lookup", WORDS, 25.0))
    race.results = [
        replace(one, runs=(replace(one.shown, passes=(replace(one.shown.passes[0], text=text),)),))
        for one, text in zip(race.results, texts, strict=True)
    ]
    assert answers(race) == shown


def test_the_charts_draw_what_was_measured():
    plain, lookup = over(("none", WORDS, 10.0), ("lookup", WORDS, 20.0)).results
    assert {height for _, height in progress(plain)} == {1.0}
    assert {height for _, height in progress(lookup)} == {2.0}
    assert progress(lookup)[-1][0] == pytest.approx(0.6)
    assert acceptance(lookup) == [(1.0, 0.75), (2.0, pytest.approx(1 / 3))]


def test_the_picture_is_one_whole_svg_with_the_records_own_figures():
    def figures(speedup: float | None, same: int) -> Figures:
        counts = {"passes": 40, "drafted": 90, "accepted": 60, "answers": 2, "identical": same}
        return Figures(tokens=100, seconds=1 / (speedup or 1), speedup=speedup, **counts)

    def lane(name: str, speedup: float | None, same: int) -> LaneRecord:
        one = figures(speedup, same)
        return LaneRecord(drafter=name, all=one, categories={"q&a": one}, passes_by_drafter={})

    record = BenchmarkRecord(
        date="2026-05-01T10:00:00+00:00",
        model="<pocket>",
        parameters=9,
        machine="a machine",
        questions=2,
        skipped=1,
        max_tokens=64,
        lanes=[lane("none", None, 2), lane("chain", 0.5, 1), lane("lookup", 2.25, 2)],
        refused={},
    )
    words = " ".join(Xml.fromstring(card(record)).itertext())
    for part in (
        "2.25\u00d7",
        "0.50\u00d7",
        "<pocket>",
        "Q&a",
        "3 of 4 drafted answers",
        "1 skipped",
    ):
        assert part in words
    assert "Lookup was 2.25 times as fast" in summary(record)


def test_every_size_of_a_benchmark_can_be_chosen():
    assert re.findall(r'option value="(\w+)"', INTRODUCTION) == list(SIZES)


@pytest.fixture
def page(browser: Browser, app: Application) -> Iterator[Page]:
    with visiting(browser, app) as opened:
        compare(opened)
        yield opened


def prompt(page: Page) -> Locator:
    return page.locator("#race textarea")


def compare(page: Page) -> None:
    page.get_by_role("tab", name="Compare").click()
    expect(prompt(page)).to_be_visible()


def choose(page: Page, modes: set[str], rounds: str = "1", length: str = "64") -> None:
    for box in page.locator("#race").get_by_role("checkbox").all():
        box.set_checked(box.get_attribute("value") in modes)
    page.locator("#race").get_by_label("Rounds").select_option(rounds)
    page.locator("#race").get_by_label("Longest answer").select_option(length)


@pytest.mark.browser
def test_a_race_continues_when_its_page_is_left(browser, app):
    with visiting(browser, app) as page:
        compare(page)
        button(page, "Quote a text")
        choose(page, {"auto", "lookup"})
        button(page, "Race")
        expect(page.locator("#compare-status")).to_contain_text(re.compile("Warm-up|Round"))
    with visiting(browser, app) as page:
        compare(page)
        expect(page.locator("#agreement")).to_contain_text("Identical tokens", timeout=SLOW)
        quote = page.get_by_role("button", name="Quote a text", exact=True)
        expect(prompt(page)).to_have_value(quote.last.get_attribute("data-text") or "")
        expect(page.locator(".lane h3")).to_have_text(["Plain", "Auto", "Lookup"])


@pytest.mark.browser
def test_formulas_of_the_answer_are_drawn(page):
    prompt(page).fill("Repeat this text exactly:\nThe area is \\(x^2\\).")
    choose(page, {"lookup"})
    button(page, "Race")
    expect(page.locator("#compare-answers .katex")).to_be_visible(timeout=SLOW)
    answer = page.locator("#compare-answers")
    expect(answer).to_contain_text("The area is")
    for width, height in ((1280, 800), (390, 844), (800, 480)):
        page.set_viewport_size({"width": width, "height": height})
        assert answer.evaluate("box => box.scrollHeight - box.clientHeight") == 0, "cut off"
        lanes = page.locator("#compare .lanes").bounding_box()
        box = answer.bounding_box()
        assert (box["x"], box["width"]) == (lanes["x"], lanes["width"]), "not in line"


@pytest.mark.browser
def test_a_race_ends_with_identical_tokens_figures_and_a_replay(page):
    button(page, "Quote a text")
    choose(page, {"auto", "lookup"}, rounds="3")  # one would leave depths too rarely seen to draw
    button(page, "Race")
    expect(page.locator("#compare-status")).to_contain_text(re.compile("Warm-up|Round"))
    expect(page.locator(".lanes.replaying")).to_be_visible(timeout=SLOW)
    expect(page.locator("#agreement")).to_contain_text("Identical tokens", timeout=SLOW)
    assert violations(page) == []
    names = page.locator(".lane h3")
    expect(names).to_have_text(["Plain", "Auto", "Lookup"])
    expect(page.locator(".lane .tag")).to_have_count(2)
    expect(page.locator(".charts svg")).to_have_count(2)
    expect(page.locator("#compare-verdict")).to_contain_text("warm-up that is not counted")
    expect(page.locator("#compare-verdict tbody tr")).to_have_count(3)
    expect(page.locator(".lanes[data-state=over]:not(.replaying)")).to_be_visible()
    texts = page.locator(".written").all_text_contents()
    assert len(set(texts)) == 1
    assert texts[0].startswith("The boat left the harbour")
    button(page, "Watch again")
    expect(page.locator(".lanes.replaying")).to_be_visible()
    expect(page.locator(".lanes:not(.replaying)")).to_be_visible()
    assert page.locator(".written").all_text_contents() == texts


@pytest.mark.browser
def test_the_chat_goes_first_and_stop_ends_the_race(page):
    prompt(page).fill(LONG)
    choose(page, {"lookup"}, "5", "1024")
    button(page, "Race")
    expect(page.locator(".lane.now .written").first).not_to_be_empty()
    page.get_by_role("tab", name="Chat").click()
    write(page, "What is 12 + 30?")
    answered(page, 1)
    page.get_by_role("tab", name="Compare").click()
    expect(page.locator("#compare-status")).not_to_be_empty()
    button(page, "Stop")
    expect(page.locator("#compare-act")).to_contain_text("Stopped")
    expect(page.get_by_role("button", name="Race", exact=True)).to_be_enabled()
    expect(page.locator("#compare-verdict")).to_be_empty()


@pytest.mark.browser
def test_a_benchmark_is_saved_and_shared_as_picture_and_json(page, tmp_path):
    button(page, "Benchmark my machine")
    expect(page.locator("#compare-progress")).to_contain_text("of 34 answers")
    expect(page.locator("#compare-progress")).to_contain_text("left", timeout=SLOW)
    expect(page.get_by_role("button", name="Race", exact=True)).to_be_disabled()
    expect(page.locator(".saved .opened")).to_be_visible(timeout=SLOW)
    kept = {}
    for name, ending in (("Save as JSON", "json"), ("Save as PNG", "png")):
        with page.expect_download() as download:
            button(page, name)
        assert download.value.suggested_filename.endswith(f"pocket.{ending}")
        kept[ending] = tmp_path / f"kept.{ending}"
        download.value.save_as(kept[ending])
    record = BenchmarkRecord.model_validate(json.loads(kept["json"].read_text()))
    assert record.identical
    assert record.questions == 16
    assert [lane.drafter for lane in record.lanes] == ["none", "auto"]
    picture = kept["png"].read_bytes()
    assert picture[:8] == b"\x89PNG\r\n\x1a\n"
    assert struct.unpack(">II", picture[16:24]) == (2400, 1350)
    assert len(picture) > 20_000  # an empty canvas is far smaller
    page.locator(".opened summary").click()
    assert violations(page) == []
    rows = page.locator(".saved > li")
    before = rows.count()
    button(page, "Delete")
    button(page, "Delete it")
    expect(rows).to_have_count(before - 1)


@pytest.mark.browser
def test_what_cannot_be_raced_is_refused_in_place(page):
    alert = page.locator("#compare").get_by_role("alert")
    prompt(page).fill(" ")
    for _ in range(2):  # the button wakes up again
        button(page, "Race")
        expect(alert).to_have_text("The prompt is empty; write something to answer.")
    prompt(page).fill("What is 12 + 30?")
    choose(page, {"auto", "lookup", "suffix", "chain"})
    button(page, "Race")
    expect(alert).to_contain_text("4 modes are chosen next to plain; choose 1 to 3")
    choose(page, {"auto"})
    prompt(page).fill("word " * 5000)
    button(page, "Race")
    expect(page.locator("#compare-act")).to_contain_text("4096")
    expect(prompt(page)).to_have_value("word " * 5000)


@pytest.mark.browser
def test_narrow_and_dark_nothing_sticks_out(browser, app):
    size = {"width": 390, "height": 844}
    with visiting(browser, app, color_scheme="dark", viewport=size) as page:
        compare(page)
        prompt(page).fill("What is 12 + 30?")
        choose(page, {"lookup"})
        button(page, "Race")
        expect(page.locator("#agreement")).to_be_visible(timeout=SLOW)
        assert (
            page.evaluate("document.querySelector('#tabs > .tabitem:not([hidden])').scrollWidth")
            <= 390
        )
        wide = "[...document.querySelectorAll('#compare :is(p, h2, h3, svg, button, textarea, select)')]"
        assert (
            page.evaluate(
                f"{wide}.filter((e) => !e.closest('.wide') && e.getBoundingClientRect().right > 390).length"
            )
            == 0
        )
        assert violations(page) == []
        ink = "getComputedStyle(document.querySelector('#compare h2')).color"
        assert page.evaluate(ink) == "rgb(230, 235, 232)"
