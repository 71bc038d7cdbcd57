"""The page shows cross tables of pairs, and of cohorts and values: three kinds of shares, and a link that keeps the choice."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import expect

from ldpstream.publishing.answers.sentences import percent
from ldpstream.publishing.estimates.cross_table import CrossTable, TableShares
from ldpstream.publishing.estimates.publication import Publication
from ldpstream.services.demo import Demo
from tests.pair_survey import pair_survey
from tests.publishing import cohort_rig as rig

from .page_rig import OpenPage, demo_page, served, shoot
from .test_page_accessibility import findings
from .test_page_links import parameters, shown, wait_for_address

SURVEY = pair_survey(window_steps=3, lateness_steps=1)


@pytest.fixture(scope="module")
def demo() -> Demo:
    return rig.demo_of(SURVEY, 20_000, 3)


@pytest.fixture(scope="module")
def url(demo: Demo) -> Iterator[str]:
    with demo_page(SURVEY, demo) as address:
        yield address


@pytest.fixture(scope="module")
def cohorts_url() -> Iterator[str]:
    with served(rig.SURVEY, rig.demo().service.results) as address:
        yield address


def published(demo: Demo, span: str) -> Publication:
    [found] = [p for p in demo.service.results.history() if (p.attribute, p.span, p.step) == ("mode_by_zone", span, 2)]
    return found


def shown_share(of: TableShares, i: int) -> tuple[str, str]:
    """A share and its interval, with the digits of the interval."""
    share, low, high = of.shares[i], of.low[i], of.high[i]
    assert share is not None
    assert low is not None
    assert high is not None
    text, _, ends = percent(share, low, high).partition(", ")
    return text, ends


def test_the_cross_table_and_its_link(url: str, open_page: OpenPage, demo: Demo) -> None:
    page = open_page(f"{url}?attribute=mode_by_zone")
    table = published(demo, "window").table
    assert isinstance(table, CrossTable)
    expect(page.locator("#cross-title")).to_have_text("Mode and zone together")
    assert page.locator("#cross-table thead th").all_inner_texts() == [
        "mode ↓ zone →", "0 to 2", "2 to 5", "5 to 50", "all"
    ]  # fmt: skip
    first = page.locator("#cross-table tbody tr").nth(0).locator("td").nth(0)
    expect(first).to_contain_text("".join(shown_share(table.cells, 0)))
    expect(first).to_contain_text("truth")
    expect(page.locator("#cross-test")).to_contain_text("Mode and zone depend on each other")
    expect(page.locator("#cross-table tbody tr")).to_have_count(4)
    expect(page.locator("#cross-table tbody tr").nth(3)).to_contain_text(shown_share(table.columns, 1)[0])
    page.select_option("#cross-part", label="within each mode")
    expect(first).to_contain_text(shown_share(table.within_rows, 0)[0])
    address = wait_for_address(page, lambda found: found.get("table") == "rows")
    assert address["attribute"] == "mode_by_zone"
    other = open_page(page.url)
    assert other.locator("#cross-part").input_value() == "rows"
    assert other.locator("#cross-table").inner_text() == page.locator("#cross-table").inner_text()
    assert shown(other) == shown(page)
    assert findings(other) == []
    shoot(other.locator("#cross"), "pairs")
    query = parameters(page.locator("#cross-csv").get_attribute("href") or "")
    assert (query["span"], query["step"]) == ("window", "2")
    page.select_option("#cross-part", label="within each zone")
    expect(first).to_contain_text(shown_share(table.within_columns, 0)[0])
    page.go_back()
    expect(first).to_contain_text(shown_share(table.within_rows, 0)[0])
    page.close()
    other.close()


def test_cohorts_and_values_have_the_same_table(cohorts_url: str, open_page: OpenPage) -> None:
    page = open_page(f"{cohorts_url}?attribute=screen&table=rows")
    expect(page.locator("#cross-title")).to_have_text("Version and screen together")
    names = page.locator("#cross-table tbody th").all_inner_texts()
    assert names == [*rig.COHORT.values, "all"]
    expect(page.locator("#cross-table tbody tr").nth(3).locator("td").nth(0)).to_have_text("–")  # below the least size
    expect(page.locator("#cross-test")).to_be_empty()
    assert findings(page) == []
    page.select_option("#cohort", label=f"version {rig.COHORT.values[0]}")
    expect(page.locator("#cross")).to_be_hidden()
    page.close()
