"""Stories of the input: what is written there is not lost, and is asked once."""

import pytest
from playwright.sync_api import Page, expect

from tests.ui.browser import answered, button, visiting, write

pytestmark = pytest.mark.browser


def box(page: Page) -> str:
    return page.get_by_label("Your message").input_value()


def test_a_wrong_setting_is_reported_and_forgotten(page):
    button(page, "Settings")
    field = page.locator("[data-setting=top_k]")
    field.fill("1.5")
    field.press("Tab")
    expect(page.get_by_role("alert")).to_contain_text("Top k cannot be 1.5")
    expect(field).to_have_value("0")
    page.evaluate(
        "localStorage.setItem('slipstream-settings', JSON.stringify({ top_k: 2.5, temperature: 0.5 }))"
    )
    page.reload()
    expect(page.get_by_role("alert")).to_contain_text("Top k cannot be 2.5")
    write(page, "What is 2 + 3?")
    answered(page, 1)
    page.reload()
    expect(page.get_by_role("alert")).to_have_count(0)
    button(page, "Settings")
    expect(page.locator("[data-setting=temperature]")).to_have_value("0.5")


def test_a_double_click_asks_once_and_keeps_what_is_being_written(page):
    page.get_by_label("Your message").fill("my half-written question")
    page.locator(".card").first.dblclick()
    answered(page, 1)
    expect(page.locator(".question")).to_have_count(1)
    expect(page.get_by_role("alert")).to_have_count(0)
    assert box(page) == "my half-written question"
    page.get_by_role("button", name="Send").dblclick()
    answered(page, 2)
    expect(page.locator(".question").last).to_have_text("my half-written question")
    expect(page.get_by_role("alert")).to_have_count(0)
    assert box(page) == ""


def test_what_is_being_written_outlives_a_reload(page):
    page.get_by_label("Your message").fill("not yet\nasked")
    page.reload()
    expect(page.get_by_label("Your message")).to_have_value("not yet\nasked")
    page.get_by_label("Your message").fill("")
    page.reload()
    page.wait_for_selector("#page.ready")
    assert box(page) == ""


def test_attached_files_outlive_a_reload_until_they_are_sent(page):
    chips = page.locator(".chip")
    files = [
        {"name": name, "mimeType": "text/plain", "buffer": text.encode()}
        for name, text in (("a.txt", "The sea is blue."), ("b.txt", "The sky is red."))
    ]
    page.get_by_label("Text files to attach").set_input_files(files)
    expect(chips).to_have_count(2)
    page.reload()
    expect(chips).to_have_count(2)
    page.get_by_role("button", name="Remove a.txt").click()
    expect(chips).to_have_count(1)
    page.reload()
    expect(chips).to_contain_text(["b.txt"])
    write(page, "What is red?")
    answered(page, 1)
    expect(page.locator(".file")).to_contain_text(["b.txt"])
    page.reload()
    page.wait_for_selector("#page.ready")
    expect(chips).to_have_count(0)


def test_an_edit_that_is_refused_is_still_an_edit(page):
    write(page, "What is 2 + 3?")
    answered(page, 1)
    page.get_by_label("Your message").fill("half a thought")
    page.locator(".user-row").hover()
    button(page, "Edit this message")
    write(page, " ")
    expect(page.get_by_role("alert")).to_contain_text("write something")
    expect(page.locator("#editing")).to_be_visible()
    write(page, "What is 5 + 5?")
    expect(page.locator(".question")).to_have_text(["What is 5 + 5?"])
    answered(page, 1)
    expect(page.locator("#editing")).to_be_hidden()
    expect(page.get_by_label("Your message")).to_have_value("half a thought")
    expect(page.get_by_text("2 / 2")).to_be_visible()


def test_files_are_in_the_order_in_which_they_were_chosen(page, tmp_path):
    files = [tmp_path / f"{name}.txt" for name in "dbca"]
    for size, file in zip((400, 9, 100, 1), files, strict=True):
        file.write_text(f"words of {file.name} " * size)
    page.locator("#attach-file").set_input_files(files)
    expect(page.locator(".chip")).to_have_count(4)
    names = page.locator(".chip").all_inner_texts()
    assert [name[:5] for name in names] == ["d.txt", "b.txt", "c.txt", "a.txt"]
    for left in (3, 2, 1, 0):
        page.locator(".chip button").first.click()
        expect(page.locator(".chip")).to_have_count(
            left
        )  # or the next click may be on the same one


def test_a_long_name_leaves_its_chip_within_the_page(browser, app, tmp_path):
    file = tmp_path / "2026-11-27_quarterly_report_final_version_reviewed_by_everybody.csv"
    file.write_text("a,b")
    with visiting(browser, app, viewport={"width": 390, "height": 780}) as page:
        page.locator("#attach-file").set_input_files(file)
        expect(page.locator(".chip button")).to_be_in_viewport(ratio=1)
        place = page.locator(".chip").bounding_box()
        assert place is not None
        assert place["x"] + place["width"] <= 390


def test_too_many_windows_are_reported(page, app):
    crowd = page.locator("#crowd")
    expect(crowd).to_be_hidden()
    others = []
    for _ in range(5):
        others.append(page.context.new_page())
        others[-1].goto(app.address)
        others[-1].wait_for_selector("#page.ready")
    expect(others[-1].locator("#crowd")).to_contain_text("open in 6 windows")
    page.bring_to_front()
    expect(crowd).to_be_visible()
    others.pop().close()
    expect(crowd).to_be_hidden()
    write(page, "What is 2 + 3?")
    answered(page, 1)
