"""What people are used to from other pages: their keyboards, clipboards, languages, Back, paper."""

import re

import pytest
from playwright.sync_api import Page, expect

from app.history.store import History
from app.settings import Settings
from engine.request import FinishReason
from tests.ui.application import application
from tests.ui.browser import answered, button, visiting, write

pytestmark = pytest.mark.browser

BLOCKED = """for (const name of ['localStorage', 'sessionStorage', 'indexedDB'])
  Object.defineProperty(window, name, { get() { throw new DOMException('blocked', 'SecurityError'); } });
navigator.locks.query = navigator.locks.request = async () => { throw new DOMException('blocked', 'SecurityError'); };"""
FULL = (
    "Storage.prototype.setItem = () => { throw new DOMException('full', 'QuotaExceededError'); };"
)
NULL = "for (const name of ['localStorage', 'sessionStorage']) Object.defineProperty(window, name, { value: null });"
TAGS = "std::vector<int> v; (~2 m) (~5 m) <think>a</think> `Map<K, V>` Costs $5.\n\n\\(a<b\\)"
EXTRAS = """2*3*4 = 24, x**2 + y**2, call __init__ or `__main__`.

![a cat](https://example.com/cat.png) see [1]

[1]: https://example.com/one

![rel](/x.png) [go](javascript:alert(1)) <a href="https://example.com">c</a>

1984. one
   - nested

|a|b|
|-|-:|
|`x||y`|1|

```mermaid
graph TD; A-->B
```"""
RIGHT = "- تفاح\n- موز\n\n| الاسم | السعر |\n|---|---|\n| تفاح | 5 |\n\n1. one\n2. two\n\n```\nكود = 1\n```"
MARKDOWN = "localStorage.setItem('slipstream-settings', JSON.stringify({ look: 'markdown' }))"


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    """A running Slipstream whose history holds conversations with these answers."""
    home = tmp_path_factory.mktemp("home")
    history = History.open(Settings(home=home).database)
    long = "\n\n".join(f"Paragraph {number}. " + "Words go here. " * 40 for number in range(40))
    for title, text in (("Tags", TAGS), ("Extras", EXTRAS), ("Right", RIGHT), ("Long", long)):
        made = history.create_conversation(title)
        asked = history.add_message(made.id, None, "user", f"about {title}")
        history.add_message(made.id, asked.id, "assistant", text, FinishReason.STOP)
    history.close()
    with application(home) as running:
        yield running


@pytest.fixture
def talks(told, browser):
    with visiting(browser, told) as page:
        page.evaluate(MARKDOWN)
        page.reload()
        page.wait_for_selector("#page.ready")
        yield page


def open_(page: Page, title: str) -> None:
    page.locator("#side .open", has_text=title).click()
    expect(page.locator(".question")).to_have_text(f"about {title}")
    expect(page.locator("#rows .md > *").first).to_be_visible()


def pressed(page: Page, **more: object) -> None:
    page.get_by_label("Your message").evaluate(
        "(box, more) => box.dispatchEvent(new KeyboardEvent('keydown', { key: 'Enter', bubbles: true, ...more }))",
        more,
    )


def test_enter_of_an_input_method_does_not_send(page):
    page.get_by_label("Your message").fill("にほん")
    for keys in ({"isComposing": True}, {"keyCode": 229}, {"shiftKey": True}, {"altKey": True}):
        pressed(page, **keys)
    page.wait_for_timeout(300)
    expect(page.locator(".question")).to_have_count(0)
    expect(page.get_by_label("Your message")).to_have_value("にほん")


@pytest.mark.parametrize("keys", ["Enter", "Control+Enter", "Meta+Enter"])
def test_enter_sends(page, keys):
    page.get_by_label("Your message").fill("What is 2 + 3?")
    page.keyboard.press(keys)
    answered(page, 1)


@pytest.mark.parametrize(
    ("text", "files", "chips"),
    [
        ("a\tb", [("image.png", "image/png")], 0),  # cells of a spreadsheet
        ("", [("image.png", "image/png")], 1),
        ("notes.txt", [("notes.txt", "text/plain")], 1),
        ("photo.png", [("photo.png", "image/png")], 1),  # a file of a file manager
    ],
)
def test_text_of_the_clipboard_wins_over_its_picture(page, text, files, chips):
    taken = page.get_by_label("Your message").evaluate(
        """(box, [text, files]) => {
            const clipboardData = new DataTransfer();
            if (text) clipboardData.setData('text/plain', text);
            for (const [name, type] of files) clipboardData.items.add(new File(['words'], name, { type }));
            return !box.dispatchEvent(new ClipboardEvent('paste', { clipboardData, bubbles: true, cancelable: true }));
        }""",
        [text, files],
    )
    assert taken == bool(chips)  # what is not taken, the browser pastes as text
    expect(page.locator(".chip")).to_have_count(chips)


def test_back_leads_to_the_tab_and_the_conversation_before(talks):
    cards, tags, long = talks.locator(".card"), "about Tags", "about Long"
    open_(talks, "Tags")
    open_(talks, "Long")
    talks.get_by_role("tab", name="Models").click()
    expect(talks).to_have_url(re.compile("#models$"))
    talks.reload()
    expect(talks.get_by_role("tab", name="Models")).to_have_attribute("aria-selected", "true")
    talks.get_by_role("tab", name="Chat").click()
    expect(talks.locator(".question")).to_have_text(long)
    talks.go_back()
    expect(talks.get_by_role("tab", name="Models")).to_have_attribute("aria-selected", "true")
    talks.go_back()
    expect(talks.locator(".question")).to_have_text(long)
    talks.go_back()
    expect(talks.locator(".question")).to_have_text(tags)
    talks.go_back()
    expect(cards).to_have_count(3)
    talks.go_forward()
    expect(talks.locator(".question")).to_have_text(tags)


def test_paper_has_the_whole_conversation_and_nothing_else(talks):
    open_(talks, "Long")
    assert talks.pdf().count(b"/Type /Page\n") > 5
    talks.emulate_media(media="print")
    expect(talks.locator("#rows")).to_be_visible()
    for part in ("#side", "#composer", "#masthead", "#tabs > .tab-wrapper", "#rows .acts"):
        expect(talks.locator(part).first).to_be_hidden()
    talks.emulate_media(media="screen")


@pytest.mark.parametrize("script", [BLOCKED, FULL, NULL], ids=["blocked", "full", "null"])
def test_the_page_works_where_the_browser_stores_nothing(app, browser, script):
    with visiting(browser, app, script=script) as page:
        button(page, "Dark or light")
        write(page, "What is 2 + 3?")
        answered(page, 1)
        button(page, "Settings")
        page.get_by_label("Colour drafted words").check()
        page.keyboard.press("Alt+n")
        expect(page.locator(".card")).to_have_count(3)


def test_answers_are_shown_as_written(talks):
    open_(talks, "Tags")
    shown = talks.locator("#rows .bot-row").first
    expect(shown).to_contain_text(
        "std::vector<int> v; (~2 m) (~5 m) <think>a</think> Map<K, V> Costs $5."
    )
    expect(shown.locator("del")).to_have_count(0)
    expect(shown.locator(".katex")).to_have_count(1)


def test_what_markdown_hides_is_shown(talks):
    open_(talks, "Extras")
    shown = talks.locator("#rows .bot-row").first
    for part in (
        "2*3*4 = 24, x**2 + y**2, call __init__ or __main__.",
        "[1]: https://example.com/one",
        '![rel](/x.png) [go](javascript:alert(1)) <a href="https://example.com">c</a>',
        "graph TD; A-->B",
    ):
        expect(shown).to_contain_text(part)
    addresses = "links => links.map(link => link.getAttribute('href'))"
    page = "https://example.com"
    leads = shown.locator("a").evaluate_all(addresses)
    assert leads == [f"{page}/cat.png", f"{page}/one", f"{page}/one", page]
    expect(shown.locator("td code")).to_have_text("x||y")
    expect(shown.locator("td").last).to_have_css("text-align", "right")
    outer, inner = (
        item.evaluate("item => getComputedStyle(item).fontSize")
        for item in shown.locator("li").all()
    )
    assert outer == inner
    room = shown.locator("ol").evaluate("list => parseFloat(getComputedStyle(list).paddingLeft)")
    assert room > 40  # for 1984
    expect(shown.get_by_role("link", name="a cat")).to_be_visible()
    expect(shown.locator("img, svg.mermaid, .mermaid, em, strong")).to_have_count(0)


def test_lists_and_tables_begin_on_the_side_of_their_language(talks):
    open_(talks, "Right")
    blocks = talks.locator("#rows .md").first
    for part, side in (("ul", "rtl"), ("table", "rtl"), ("ol", "ltr"), ("pre", "ltr")):
        expect(blocks.locator(part).first).to_have_css("direction", side)
    bullets = blocks.locator("ul").first.evaluate(
        "list => ['paddingLeft', 'paddingRight'].map(side => parseFloat(getComputedStyle(list)[side]))"
    )
    assert bullets[0] == 0 < bullets[1]
    first, second = (cell.bounding_box() for cell in blocks.locator("th").all())
    assert first["x"] > second["x"]
