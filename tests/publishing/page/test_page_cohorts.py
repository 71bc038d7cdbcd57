"""The page filters by cohort: a select, links, and a cohort below its least size, of which the page shows no histogram."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import expect

from tests.publishing import cohort_rig as rig

from .page_rig import OpenPage, served, unfold, written
from .test_page_accessibility import findings
from .test_page_links import parameters, shown, wait_for_address

OLD, NEW, BETA, FORMULA = rig.COHORT.values


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with served(rig.SURVEY, rig.demo().service.results) as address:
        yield address


def test_a_cohort_is_chosen_and_a_link_shows_it(url: str, open_page: OpenPage) -> None:
    page = open_page(f"{url}?attribute=latency_ms&span=filtered&estimator=mi")
    assert page.locator("#cohort-name").inner_text() == "Version"
    assert page.locator("#cohort option").all_inner_texts() == ["all people", *(f"version {c}" for c in rig.COHORT.values)]
    unfold(page)
    everybody = page.locator("#values").inner_text()
    page.select_option("#cohort", label=f"version {NEW}")
    expect(page.locator("#attribute-title")).to_have_text("latency_ms, version 1.1")
    n = rig.published("latency_ms", "window", rig.STEPS - 1, NEW).reports
    expect(page.locator("#summary")).to_contain_text(f"Version 1.1: {n:,} reports of at least")
    assert page.locator("#values").inner_text() != everybody
    assert page.locator("#span label:visible").all_inner_texts() == ["hour", "2 hours"]  # the span was "filtered"
    assert page.locator("#estimator option").all_inner_texts() == ["empirical Bayes (default)"]
    assert page.locator("#estimator").is_disabled()
    assert page.locator("#post").is_disabled()
    expect(page.locator("#quantiles-card")).to_be_visible()
    page.select_option("#against", "time")
    expect(page.locator("#comparison")).to_be_visible()
    expect(page.locator("#reports-hint")).to_contain_text("Reports of latency_ms, version 1.1 used by")
    address = wait_for_address(page, lambda found: found.get("cohort") == NEW and "before" in found)
    assert not {"span", "estimator"} & set(address)
    for link in ("#histogram-csv", "#histogram-json", "#series-csv", "#quantiles-csv", "#comparison-json"):
        assert parameters(page.locator(link).get_attribute("href") or "")["cohort"] == NEW
    other = open_page(page.url)
    assert shown(other) == shown(page)
    assert findings(other) == []
    page.select_option("#cohort", label="all people")
    expect(page.locator("#attribute-title")).to_have_text("latency_ms")
    assert "filtered" in page.locator("#span label:visible").all_inner_texts()
    page.go_back()
    expect(page.locator("#attribute-title")).to_have_text("latency_ms, version 1.1")
    page.close()
    other.close()


def test_two_cohorts_are_compared(url: str, open_page: OpenPage) -> None:
    page = open_page(f"{url}?attribute=screen&cohort={NEW}&before=0")
    expect(page.locator("#comparison-title")).to_have_text("Change, in percentage points")
    unfold(page)
    page.select_option("#against", label=f"vs version {OLD}")
    expect(page.locator("#comparison-title")).to_have_text("Difference, in percentage points")
    said = page.locator("#comparison-summary").inner_text()
    assert said.startswith("Version 1.1 minus 1.0, 5 Jan 2026, 02:00–04:00 UTC (step 3), empirical Bayes (default). ")
    row = page.locator("#values tbody tr").first.inner_text().replace("−", "-").split("\t")
    new, old = (rig.published("screen", "window", rig.STEPS - 1, cohort).estimators["eb"].estimate() for cohort in (NEW, OLD))
    assert row[1] == written(new, 0)
    assert float(row[5]) == pytest.approx(100 * (new.frequencies[0] - old.frequencies[0]), abs=0.06)
    with page.expect_download() as download:
        page.locator("#comparison-csv").click()
    assert download.value.suggested_filename == "versions-screen-1.1_minus_1.0-comparison-window-eb-step-3-3.csv"
    with page.expect_download() as download:
        page.locator("#comparison-png").click()
    assert download.value.suggested_filename == "versions-screen-1.1-window-difference-step-3-3.png"
    address = wait_for_address(page, lambda found: "against" in found)
    assert (address["against"], "before" in address) == (OLD, False)
    other = open_page(page.url)
    assert shown(other) == shown(page)
    assert findings(other) == []
    other.close()
    page.select_option("#against", label=f"vs version {FORMULA}")
    expect(page.locator("#comparison-summary")).to_contain_text("There is no estimate of one of the two cohorts.")
    page.select_option("#against", label="vs all people")
    expect(page.locator("#comparison-summary")).to_contain_text("Version 1.1 minus all people")
    page.locator("#to-overview").click()
    expect(page.locator("#sentences p").last).to_contain_text("Against all people:")
    page.go_back()
    page.select_option("#cohort", label=f"version {FORMULA}")
    expect(page.locator("#comparison-summary")).to_contain_text("There is no estimate of one of the two cohorts.")
    page.goto(f"{url}?cohort={OLD}&against=2.0")
    expect(page.locator("#notice-text")).to_have_text("This page cannot compare with the cohort “2.0”.")
    page.close()


def test_a_cohort_below_the_least_size_has_a_number_of_reports_and_no_histogram(url: str, open_page: OpenPage) -> None:
    page = open_page(f"{url}?attribute=screen")
    unfold(page)
    page.select_option("#cohort", label=f"version {FORMULA}")
    expect(page.locator("#summary")).to_have_text(
        f"Version {FORMULA}: 260 reports in this window, which may come from fewer than {rig.LEAST} people: "
        "no histogram is published."
    )
    assert set(page.locator("#values tbody td").all_inner_texts()) == {"–"}
    expect(page.locator("#series-hint")).to_have_text("In these steps the cohort is below the least size.")
    page.locator("#histogram").focus()
    page.keyboard.press("ArrowRight")
    expect(page.locator("#readout")).to_contain_text("no estimate, since the cohort is below the least size")
    page.close()
