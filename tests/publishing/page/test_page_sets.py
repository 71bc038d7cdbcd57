"""The page shows a question with several answers: shares that do not sum to 100 %, and the mean number of values."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import expect

from tests.publishing import cohort_rig as rig
from tests.set_survey import MODE, set_survey

from .page_rig import OpenPage, choose_span, demo_page, shoot, unfold
from .test_page_accessibility import findings

SURVEY = set_survey(MODE, window_steps=3, lateness_steps=1)


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with demo_page(SURVEY, rig.demo_of(SURVEY, 20_000, 3)) as address:
        yield address


def test_the_histogram_has_all_answers_and_the_numbers_of_answers(url: str, open_page: OpenPage) -> None:
    page = open_page(f"{url}?attribute=apps")
    expect(page.locator("#summary")).to_contain_text(
        "People choose up to 3 values, so the shares do not sum to 100 %. The last bars"
    )
    unfold(page, "numbers", "privacy")
    rows = page.locator("#values tbody tr")
    expect(rows).to_have_count(8)
    expect(rows.last).to_contain_text("none of these")
    expect(page.locator("#quantiles-title")).to_have_text("Mean number of values")
    expect(page.locator("#quantiles-legend li")).to_have_count(1)
    expect(page.locator("#quantiles-legend li")).to_contain_text("mean number of values 1.")
    expect(page.locator("#privacy-line")).to_contain_text("without a report, a guess is right with a chance of 50.0 %")
    assert findings(page) == []
    shoot(page.locator("#estimate"), "sets")
    choose_span(page, "filtered")
    expect(page.locator("#quantiles-legend li")).to_contain_text("mean number of values 1.")
    page.select_option("#attribute", "mode")
    expect(page.locator("#attribute-title")).to_have_text("mode")
    expect(page.locator("#summary")).not_to_contain_text("People choose")
    page.close()
