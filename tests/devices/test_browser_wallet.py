"""The wallet of the TypeScript device in Chromium: two tabs, a killed browser and a cleared store never exceed one budget."""

from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace
from playwright.sync_api import BrowserContext, Page, Playwright

from ldpstream.device.claims import claim
from tests.producers.samples import make_survey

from .browser_rig import Chromium, PageServer, tab
from .test_browser import context as context  # a fixture

SURVEY = make_survey({"zone": (4, [{"name": "spaced", "mechanism": "GRR", "eps": 1.0, "every_steps": 3}])})
SURVEYS = [replace(SURVEY, name=name) for name in ("one", "two", "three")]
DOCUMENTS = [msgspec.to_builtins(survey.device_survey) for survey in SURVEYS]
WINDOW_S = 120
CHARGE = claim(SURVEY, [0], WINDOW_S).per_window
LIMITS = {"perWindow": 2.5 * CHARGE, "windowSeconds": WINDOW_S}  # enough for two of the three surveys


def wallet(context: BrowserContext, server: PageServer, **options: Any) -> Page:
    """Opens a tab with the wallet."""
    page = tab(context, server)
    assert page.evaluate("made => open_wallet(...made)", [LIMITS, options]) is None
    return page


def enroll(page: Page, number: int) -> str | None:
    """The name of the error, or None."""
    failed = page.evaluate("document => enroll(document)", DOCUMENTS[number])
    return None if failed is None else str(failed["error"])


def test_two_tabs_share_one_budget(context: BrowserContext, server: PageServer) -> None:
    """Both tabs ask at once for a survey of their own; the budget has room for one of the two."""
    pages = [wallet(context, server) for _ in range(2)]
    assert enroll(pages[0], 0) is None
    for page, document in zip(pages, DOCUMENTS[1:], strict=True):
        page.evaluate("document => { window.result = enroll(document) }", document)
    results = [page.evaluate("() => result") for page in pages]
    assert sorted(failed["error"] for failed in results if failed is not None) == ["WalletFull"]
    admitted = SURVEYS[1 + results.index(None)].name
    for page in pages:
        assert page.evaluate("() => wallet_spent()") == [["one", admitted], 2 * CHARGE]


def test_a_killed_browser_keeps_the_charges(playwright: Playwright, server: PageServer, tmp_path: Path) -> None:
    chromium = Chromium(playwright, tmp_path)
    page = wallet(chromium.context, server)
    assert [enroll(page, number) for number in range(2)] == [None, None]
    chromium.kill()
    chromium.start()
    page = wallet(chromium.context, server, expectEnrolled=True)
    assert page.evaluate("() => wallet_spent()") == [["one", "two"], 2 * CHARGE]
    assert enroll(page, 2) == "WalletFull"
    chromium.context.close()


def test_a_cleared_wallet_is_an_error(context: BrowserContext, server: PageServer) -> None:
    page = wallet(context, server)
    assert enroll(page, 0) is None
    tab(context, server).evaluate("() => delete_store()")
    assert page.evaluate("() => wallet_spent()")["error"] == "StoreCleared"
    refused = page.evaluate("made => open_wallet(...made)", [LIMITS, {"expectEnrolled": True}])
    assert refused["error"] == "StoreCleared"
