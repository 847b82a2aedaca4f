"""Stories of the chat: what answers look like, long conversations, two pages, a narrow screen."""

import json
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.ui.browser import (
    LONG,
    another,
    answered,
    button,
    choose,
    decode_plainly,
    visiting,
    write,
)

pytestmark = pytest.mark.browser

CODE = "def double(words):\n    return [word * 2 for word in words]  # each"
ANSWER = f"""## Doubling

About \\(2n\\) steps, or $O(n)$; it costs $5 and $6.

$$T(n) = 2n$$

```python
{CODE}
```

| Way | Steps |
|---|---:|
| loop | 10 |

<b onclick="alert(1)">raw</b>
"""


def take_in(page: Page, folder: Path, *messages: str) -> None:
    """Import a conversation of these messages, the person's first."""
    rows = [
        {
            "id": str(number),
            "parent": str(number - 1) if number else None,
            "role": ("user", "assistant")[number % 2],
            "content": content,
            "finish_reason": "stop" if number % 2 else None,
        }
        for number, content in enumerate(messages)
    ]
    kept = {"format": "slipstream conversation", "title": "Kept", "messages": rows}
    file = folder / "kept.json"
    file.write_text(json.dumps(kept))
    page.locator("#import-file").set_input_files(file)
    expect(page.locator("#title")).to_have_text("Kept")


def test_an_answer_in_markdown(page, tmp_path):
    button(page, "Settings")
    page.get_by_label("Show answers as").select_option("markdown")
    take_in(page, tmp_path, "How do I double words?", ANSWER)
    answer = page.locator("#rows .bot-row").first
    expect(answer.locator("h2")).to_have_text("Doubling")
    expect(answer.locator(".katex-display")).to_have_count(1)
    expect(answer.locator(".katex")).to_have_count(3)
    expect(answer).to_contain_text("$5 and $6")
    expect(answer.locator("td").first).to_have_text("loop")
    expect(answer.locator("[onclick]")).to_have_count(0)
    keyword = answer.locator("pre .token.keyword").first
    expect(keyword).to_have_text("def")
    colours = "e => [getComputedStyle(e).color, getComputedStyle(e.parentElement).color]"
    coloured, plain = keyword.evaluate(colours)
    assert coloured != plain
    answer.locator("pre").hover()
    answer.locator(".copy_code_button, [aria-label='Copy code'], [title='copy']").first.click()
    page.wait_for_function(
        "async code => (await navigator.clipboard.readText()).trim() === code", arg=CODE
    )
    button(page, "Copy this answer")
    page.wait_for_function(
        "async text => (await navigator.clipboard.readText()) === text", arg=ANSWER
    )


def test_reasoning_is_folded_and_coloured_with_its_answer(page, tmp_path):
    button(page, "Settings")
    page.get_by_label("Show answers as").select_option("markdown")
    take_in(page, tmp_path, "2 + 3?", f"<think>\n{'First, look. ' * 50}\n</think>\n\nIt is five.")
    expect(page.locator("#rows")).to_contain_text("Reasoning")
    expect(page.get_by_text("It is five.")).to_be_visible()
    expect(page.locator("#rows")).not_to_contain_text("think>")
    page.keyboard.press("Alt+c")
    page.wait_for_function("CSS.highlights.get('own').size >= 4")


def test_a_long_conversation_opens_at_its_end(page, tmp_path):
    take_in(page, tmp_path, *(f"number {n}" for n in range(240)))
    expect(page.locator(".question")).to_have_count(50)
    expect(page.locator(".question").last).to_be_in_viewport()
    button(page, "Show 140 earlier")
    expect(page.locator(".question")).to_have_count(100)
    expect(page.get_by_text("number 140", exact=True)).to_be_in_viewport()
    button(page, "Show 40 earlier")
    expect(page.locator(".question").first).to_have_text("number 0")
    expect(page.locator(".earlier")).to_have_count(0)


def test_a_long_conversation_is_printed_whole(page, tmp_path):
    take_in(page, tmp_path, *(f"number {n}" for n in range(240)))
    expect(page.locator(".question")).to_have_count(50)
    page.emulate_media(media="print")  # the browser's own menu cannot wait for more
    expect(page.locator(".earlier")).to_be_visible()
    expect(page.locator(".earlier button")).to_be_hidden()
    said = "getComputedStyle(document.querySelector('.earlier'), '::after').content"
    assert "not on this paper" in page.evaluate(said)
    page.emulate_media(media="screen")
    page.evaluate(
        "window.print = () => { window.printed = document.querySelectorAll('.question').length; }"
    )
    page.keyboard.press("Control+p")
    page.wait_for_function("window.printed === 120")


def test_what_is_unfolded_at_the_end_is_seen(page):
    write(page, LONG)
    answered(page, 1)
    summary, why = page.locator(".caption summary"), page.locator(".caption .why")
    for width, height in ((1280, 800), (390, 844), (800, 480)):
        page.set_viewport_size({"width": width, "height": height})
        page.locator("#rows .panel-wrap").evaluate("wrap => wrap.scrollTop = wrap.scrollHeight")
        summary.click()
        expect(why).to_be_in_viewport(ratio=1)
        summary.click()
        expect(why).to_be_hidden()


def test_every_mode_that_is_offered_runs(page):
    modes = page.get_by_label("Speed").locator("option").all_inner_texts()
    assert modes[0] == "Auto"
    assert "Plain" in modes
    for mode in modes:
        page.keyboard.press("Alt+n")
        expect(page.locator(".card")).to_have_count(3)
        page.get_by_label("Speed").select_option(label=mode)
        write(page, "Repeat this text exactly:\nred hat, blue hat, red hat, blue hat")
        answered(page, 1)
        expect(page.locator(".caption .figures")).to_contain_text(mode)


def test_only_models_of_this_machine_can_be_picked(page):
    expect(page.locator("#model option")).to_have_text(["pocket"])


def test_a_dropped_file_is_attached(page):
    """Wherever it falls: what the page does not take, the browser opens in its place."""
    left = page.evaluate("""() => ['dragover', 'drop'].map(kind => {
        const dataTransfer = new DataTransfer();
        dataTransfer.items.add(new File(['some words'], 'dropped.txt'));
        return document.getElementById('side').dispatchEvent(
            new DragEvent(kind, { bubbles: true, cancelable: true, dataTransfer }));
    })""")
    assert left == [False, False]
    expect(page.locator(".chip")).to_contain_text("dropped.txt")
    button(page, "Remove dropped.txt")
    expect(page.locator(".chip")).to_have_count(0)


def test_two_pages_at_once(page, app, browser, browser_path):
    with another(browser, browser_path) as second, visiting(second, app) as other:
        decode_plainly(page)
        write(page, LONG)
        expect(page.locator(".running")).to_contain_text("Writing")
        conversation = page.url.partition("#")[2]
        other.locator(f'#side .open[data-id="{conversation}"]').click()
        expect(other.locator(".running")).to_contain_text("Writing")
        button(other, "Stop")
        for each in (page, other):
            expect(each.locator(".caption .about")).to_contain_text("Stopped by you")
        choose(other, other.locator("#side li").first, "Rename")
        other.get_by_label("New title").fill("Seen by both")
        button(other, "Save")
        expect(page.locator("#title")).to_have_text("Seen by both")
        choose(page, page.locator("#side li").first, "Delete", "Really delete?")
        expect(other.locator(".card")).to_have_count(3)


PLACES = """() => ["#composer", ".question", ".plain"].map(
    s => document.querySelector(s).getBoundingClientRect().top)"""
# noted by the page itself, however late a busy machine lets anybody look
WATCH = f"""() => {{
    window.placesWhileWriting = [];
    new MutationObserver(() => {{
        const writing = document.querySelector(".running")?.textContent.includes("Writing");
        if (writing && document.querySelector(".plain")?.textContent.includes("Anna"))
            window.placesWhileWriting.push(({PLACES})());
    }}).observe(document.body, {{subtree: true, childList: true, characterData: true}});
}}"""


def test_nothing_jumps_when_an_answer_ends(page):
    page.set_viewport_size({"width": 1440, "height": 2400})  # holds an answer that takes seconds
    decode_plainly(page)
    button(page, "Settings")
    page.get_by_label("Longest answer").fill("150")
    button(page, "Close settings")
    page.evaluate(WATCH)
    write(page, "Repeat this text exactly:\n" + "Anna has a red hat. " * 60)
    answered(page, 1)
    seen = page.evaluate("window.placesWhileWriting")
    assert seen
    assert all(places == page.evaluate(PLACES) for places in seen[:1] + seen[-1:])


def test_on_a_narrow_screen_the_list_is_a_drawer(app, browser):
    with visiting(browser, app, viewport={"width": 390, "height": 844}) as page:
        write(page, "What is 3 + 4?")
        answered(page, 1)
        for region in ("#rows .message-wrap", "#foot", "#top", "#masthead", "#tabs > .tab-wrapper"):
            wide = page.locator(region).evaluate("e => e.scrollWidth > e.clientWidth + 1")
            assert not wide, region
        side = page.locator("#side")
        expect(side).not_to_be_visible()
        button(page, "Conversations")
        expect(side).to_be_visible()
        page.keyboard.press("Escape")
        expect(side).not_to_be_visible()
        button(page, "Conversations")
        side.locator(".open").first.click()
        expect(side).not_to_be_visible()
        expect(page.locator(".question")).to_have_text("What is 3 + 4?")


def test_another_tab_and_back_by_keyboard(page):
    page.get_by_label("Your message").fill("half a thought")
    page.get_by_role("tab", name="Hardware").click()
    expect(page.get_by_label("Your message")).not_to_be_visible()
    page.keyboard.press("Alt+n")
    expect(page.get_by_label("Your message")).to_be_focused()
    expect(page.get_by_label("Your message")).to_have_value("half a thought")
