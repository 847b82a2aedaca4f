"""axe-core on the real page: no serious violation, wide and narrow, light and dark."""

import pytest
from playwright.sync_api import expect

from tests.ui.application import Application
from tests.ui.browser import answered, browsing, button, write
from ui.page import TABS

axe = pytest.importorskip("axe_playwright_python.sync_playwright")

pytestmark = pytest.mark.browser

OTHERS = [tab.name for tab in TABS if tab.name != "Chat"]
WIDE, NARROW = {"width": 1440, "height": 900}, {"width": 390, "height": 844}


@pytest.mark.parametrize(("scheme", "viewport"), [("light", WIDE), ("dark", NARROW)])
def test_no_serious_violation(
    app: Application, browser_path: str, scheme: str, viewport: dict[str, int]
) -> None:
    with browsing(app, browser_path, color_scheme=scheme, viewport=viewport) as page:
        found = []
        for step in ("welcome", "answer", "settings", *OTHERS):
            if step == "answer":
                write(page, "What is 12 + 30?")
                answered(page, 1)
            if step == "settings":
                button(page, "Settings")
            if step in OTHERS:
                page.keyboard.press("Escape")  # the settings lie over the tabs where it is narrow
                page.get_by_role("tab", name=step).click()
                expect(page.locator(".screen h2:visible").first).to_be_visible()
            for one in axe.Axe().run(page).response["violations"]:
                if one["impact"] in ("serious", "critical"):
                    places = [node["html"][:200] for node in one["nodes"][:3]]
                    found.append((step, one["id"], places))
    assert found == []
