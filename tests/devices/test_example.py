"""The example page asks its question, sends one report, and is accessible, on a phone and on a desktop, light and dark."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect

from lab.pictures import shrink
from ldpstream.surveys import load_survey
from ldpstream.surveys.envelope import Envelope
from tests.agents.samples import during
from tests.deploy.tools import TYPESCRIPT
from tests.gateway.gateway_rig import Served
from tests.publishing.page.page_rig import PATIENCE_MS, SHOTS
from tests.services.rig import wait_until

from .browser_rig import PageServer

SURVEY = load_survey(TYPESCRIPT / "example" / "survey.toml")
STEP = 100  # the day of the tests, for the page and for the gateway


@pytest.fixture
def gateway(server: PageServer) -> Iterator[Served]:
    one = Served(survey=SURVEY, origins=[server.url], now_ms=lambda: during(SURVEY, STEP))
    server.gateway = one.url
    yield one
    one.close()


def opened(browser: Browser, server: PageServer, **options: Any) -> Page:
    page = browser.new_context(**options).new_page()
    page.set_default_timeout(PATIENCE_MS)
    page.clock.set_fixed_time(datetime.fromtimestamp(during(SURVEY, STEP) / 1000, UTC))
    page.goto(f"{server.url}/example/")
    page.wait_for_selector("html[data-ready=yes]")
    return page


def findings(page: Page) -> list[str]:
    """Returns the broken rules of accessibility, each with the first element that breaks it."""
    return [f"{found['id']}: {found['nodes'][0]['html']}" for found in Axe().run(page).response["violations"]]


def answer(page: Page, value: str) -> None:
    page.get_by_label(value).check()
    page.get_by_role("button", name="Agree and send").click()
    expect(page.get_by_role("status")).to_contain_text("The service has today’s report", timeout=PATIENCE_MS)


@pytest.mark.parametrize(
    ("name", "width", "scheme"),
    [("desktop", 1100, "light"), ("desktop-dark", 1100, "dark"), ("phone", 380, "light"), ("phone-dark", 380, "dark")],
)
def test_the_page_sends_one_report_and_is_accessible(
    name: str, width: int, scheme: str, browser: Browser, server: PageServer, gateway: Served
) -> None:
    page = opened(browser, server, viewport={"width": width, "height": 900}, color_scheme=scheme)
    assert findings(page) == []
    answer(page, "bicycle")
    assert findings(page) == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    ((envelope,),) = gateway.rig.log.counted()
    sent = msgspec.msgpack.decode(envelope, type=Envelope)
    (value,) = sent.payload
    assert sent.step == STEP
    assert page.locator("#reported").text_content() == f"“{SURVEY.attributes[0].label(value)}”"
    if SHOTS:
        picture = Path(f"{SHOTS}/example-{name}.png")
        page.screenshot(full_page=True, path=picture)
        shrink(picture)
    page.reload()
    page.wait_for_selector("html[data-ready=yes]")
    answer(page, "car")  # the same day: the same report
    assert {raw for raws in gateway.rig.log.appended for raw in raws} == {envelope}
    expect(page.locator("#journal li")).to_have_count(1)
    page.get_by_role("button", name="Stop").click()
    expect(page.get_by_role("status")).to_contain_text("sends nothing more")
    expect(page.locator("#journal li")).to_have_count(0)
    page.context.close()


def test_the_page_states_the_chances_of_a_right_guess(browser: Browser, server: PageServer, gateway: Served) -> None:
    """For GRR, the bound that follows from ε is the exact chance after one report."""
    page = opened(browser, server)
    m = SURVEY.mechanisms[0][0]
    shown = page.locator("#chances strong").all_text_contents()
    assert shown == ["20 in 100", f"at most {-int(-100 * m.guess(1) // 1)} in 100", "at most 65 in 100"]
    assert 64 < 100 * m.guess(10**6) < 65
    page.context.close()


def test_the_page_tells_that_the_service_is_away(browser: Browser, server: PageServer) -> None:
    server.gateway = "http://127.0.0.1:9"
    page = opened(browser, server)
    expect(page.get_by_role("alert")).to_contain_text("the gateway gave no survey: no answer", timeout=PATIENCE_MS)
    assert page.locator("#question").is_hidden()
    assert findings(page) == []
    page.evaluate("document.body.append(document.createElement('button'))")
    assert [found.partition(":")[0] for found in findings(page)] == ["button-name"], "axe must find a planted mistake"
    page.context.close()


def test_a_report_waits_while_the_service_is_away(browser: Browser, server: PageServer, gateway: Served) -> None:
    page = opened(browser, server)
    gateway.rig.log.ready = False
    page.get_by_label("bus").check()
    with page.expect_response(lambda response: response.status == 503):
        page.get_by_role("button", name="Agree and send").click()
    expect(page.get_by_role("status")).to_contain_text("your device sends it at your next visit")
    gateway.rig.log.ready = True
    wait_until(lambda: page.evaluate("1") and gateway.rig.log.appended, lambda: "the report")
    page.context.close()
