"""axe-core on the real page: no serious violation, wide and narrow, light and dark."""

import pytest

from tests.ui.application import Application
from tests.ui.browser import answered, browsing, button, write

axe = pytest.importorskip("axe_playwright_python.sync_playwright")

pytestmark = pytest.mark.browser

WIDE, NARROW = {"width": 1440, "height": 900}, {"width": 390, "height": 844}


@pytest.mark.parametrize(("scheme", "viewport"), [("light", WIDE), ("dark", NARROW)])
def test_no_serious_violation(
    app: Application, browser_path: str, scheme: str, viewport: dict[str, int]
) -> None:
    with browsing(app, browser_path, color_scheme=scheme, viewport=viewport) as page:
        found = []
        for step in ("welcome", "answer", "settings"):
            if step == "answer":
                write(page, "What is 12 + 30?")
                answered(page, 1)
            if step == "settings":
                button(page, "Settings")
            for one in axe.Axe().run(page).response["violations"]:
                if one["impact"] in ("serious", "critical"):
                    places = [node["html"][:200] for node in one["nodes"][:3]]
                    found.append((step, one["id"], places))
    assert found == []
