"""The TypeScript device in Chromium keeps its promises with two tabs, a killed browser, and cleared storage."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest
from playwright.sync_api import Browser, BrowserContext, Page, Playwright

from tests.agents.samples import during
from tests.gateway.gateway_rig import Served
from tests.producers.samples import one_question
from tests.services.rig import wait_until

from .browser_rig import Chromium, PageServer, tab

SURVEY = one_question("L-SUE", k=64)  # a second memo equals the first with probability 3e-7
DOCUMENT = msgspec.to_builtins(SURVEY.device_survey)
STEP = 5  # the present step of the gateway


@pytest.fixture
def context(browser: Browser) -> Iterator[BrowserContext]:
    made = browser.new_context()
    yield made
    made.close()


def opened(context: BrowserContext, server: PageServer, kind: str = "indexeddb", **options: Any) -> Page:
    """Opens a tab with a device."""
    page = tab(context, server)
    assert page.evaluate("made => open_device(...made)", [DOCUMENT, kind, options]) is None
    return page


def report(page: Page, value: int, step: int) -> Any:
    """Returns [envelope in hexadecimal digits, key], or the error."""
    return page.evaluate("made => report(...made)", [value, step])


# ---- two tabs


def test_two_tabs_are_one_device(context: BrowserContext, server: PageServer) -> None:
    """The first tab's transaction is open when the second tab asks for the same step, with another value."""
    first, second = (opened(context, server, "meeting") for _ in range(2))
    for step in range(6):
        second.evaluate("made => report_second(...made)", [20, step])
        first.evaluate("made => report_first(...made)", [10, step])
        results = [page.evaluate("() => result") for page in (first, second)]
        first.evaluate("() => (device.store.meets = false)")
        assert results[0] == results[1]
        assert len(results[0]) == 2
    assert list(first.evaluate("() => memos()")) == ["memo/0/10"]  # the memo is of the first tab's value
    for page in (first, second):
        assert page.evaluate("() => spent()")["reports"] == 6
        assert [step for step, _ in page.evaluate("() => waiting()")] == list(range(6))


# ---- a killed browser


def has_left(server: PageServer, reports: int) -> bool:
    return len(server.left()) >= reports


def test_a_killed_browser_draws_nothing_twice(playwright: Playwright, server: PageServer, tmp_path: Path) -> None:
    random, sent, memos = Random(2), dict[int, Any](), dict[str, str]()
    chromium = Chromium(playwright, tmp_path)
    for _ in range(3):
        page = opened(chromium.context, server)
        known, memos = memos, page.evaluate("() => memos()")
        assert memos.items() >= known.items(), "a memo changed"
        for step in sorted(sent)[-2:]:  # sent, so certainly stored; the device may have stored one more
            assert report(page, 39, step) == sent[step], "a second report of a step"
        server.clear()
        page.evaluate("made => void report_on(...made)", [max(sent, default=0), [1, 2, 3, 4]])  # the last step again
        wait_until(partial(has_left, server, random.randrange(4, 12)), lambda: f"{len(server.left())} reports")
        chromium.kill()
        for step, reports in server.left().items():
            assert all(made == reports[0] and isinstance(made, list) for made in reports)
            assert sent.setdefault(step, reports[0]) == reports[0]
        chromium.start()
    page = opened(chromium.context, server)
    spent = page.evaluate("() => spent()")
    assert spent["reports"] in (max(sent) + 1, max(sent) + 2)  # the last one may not have left the device
    assert spent["memos"] == len(page.evaluate("() => memos()")) == 4
    assert len({key for _, key in sent.values()}) == len(sent)
    chromium.context.close()


# ---- cleared


def test_a_cleared_store_is_an_error_and_never_a_silent_new_enrolment(context: BrowserContext, server: PageServer) -> None:
    page = opened(context, server)
    before = report(page, 7, 0)
    context.new_cdp_session(page).send("Storage.clearDataForOrigin", {"origin": server.url, "storageTypes": "all"})
    for step in (0, 1):
        failed = report(page, 7, step)
        assert failed["error"] == "StoreCleared"
        assert "7" not in failed["message"]
    refused = page.evaluate("made => open_device(...made)", [DOCUMENT, "indexeddb", {"expectEnrolled": True}])
    assert refused["error"] == "StoreCleared"
    assert report(opened(context, server), 7, 0) != before  # the application has decided to enroll again


# ---- the end of a page


@pytest.fixture
def gateway(server: PageServer) -> Iterator[Served]:
    one = Served(survey=SURVEY, origins=[server.url], now_ms=lambda: during(SURVEY, STEP))
    yield one
    one.close()


@pytest.mark.parametrize("closed", [False, True], ids=["left", "closed"])
def test_a_page_that_ends_still_sends_its_report_once(
    closed: bool, context: BrowserContext, server: PageServer, gateway: Served
) -> None:
    keeper = tab(context, server)  # keeps the browser's context alive
    page = opened(context, server)
    page.evaluate("url => send_at_page_end(url)", gateway.url)
    envelope, key = report(page, 7, STEP)
    page.close(run_before_unload=True) if closed else page.goto("about:blank")
    wait_until(lambda: gateway.rig.log.appended, lambda: "a report at the end of the page")
    later = opened(context, server)
    later.evaluate("url => send(url)", gateway.url)  # with the same key, if the page did not see the answer
    assert later.evaluate("() => waiting()") == []
    assert gateway.rig.log.counted() == [[bytes.fromhex(envelope)]]
    assert key is not None
    keeper.close()
