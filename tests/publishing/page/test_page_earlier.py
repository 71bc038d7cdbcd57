"""The page shows the history of a replaced survey before the survey's own, and names the replaced survey."""

from collections.abc import Iterator
from contextlib import closing

import pytest
from playwright.sync_api import expect

from ldpstream.publishing.page.server import PageServer
from tests.publishing.replaced_rig import BETWEEN, NEW_STEPS, OLD, api_of_new

from .page_rig import OpenPage, box_of, shoot


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with closing(PageServer(api_of_new(), "127.0.0.1", 0)) as server:
        yield server.url


def test_the_curves_begin_with_the_replaced_survey(url: str, open_page: OpenPage) -> None:
    page = open_page(f"{url}?attribute=mode&span=step&values=0,2,3")
    said = page.locator("#earlier li")
    expect(said).to_have_count(1)
    expect(said).to_contain_text(f"from the replaced survey travel ({OLD.fingerprint.hex()}), up to the grey dashed line")
    expect(said).to_contain_text("bike is now bicycle; added: scooter; earlier shares unknown")
    expect(said).to_contain_text(f"step 0 to {BETWEEN - 1}")
    expect(page.locator("#legend-period")).to_contain_text(f"(step {NEW_STEPS - 1})")
    width = box_of(page.locator("#series canvas"))["width"]
    page.locator("#series .u-over").hover(position={"x": 0.15 * width, "y": 40})
    expect(page.locator("#legend-period")).to_contain_text("of survey travel)")
    now = page.locator("#legend .now")
    expect(now.nth(0)).to_have_text("–")  # scooter
    expect(now.nth(2)).to_contain_text("%")  # bicycle
    page.mouse.move(0, 0)
    expect(page.locator("#legend-period")).to_contain_text(f"(step {NEW_STEPS - 1})")
    shoot(page, "replaced")
