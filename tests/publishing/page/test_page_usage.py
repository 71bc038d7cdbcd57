"""The page of a survey that counts the use of an application: people, and who came back."""

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

from ldpstream.producers.usage import UsageValues
from tests.publishing.test_usage import AGE, EXACT, WEEK, N, demo_of, survey_of
from tests.small_survey import small_survey

from .page_rig import OpenPage, box_of, choose_span, demo_page, shoot, unfold
from .test_page_accessibility import findings

STEPS = 8


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    survey = survey_of(cohort={"name": "version", "values": ["1", "2"], "least": 2})
    with demo_page(survey, demo_of(survey, UsageValues(survey, N, STEPS, 3))) as address:
        yield address


def cells(page: Page, rows: str) -> list[list[str]]:
    found = [row.locator("th, td").all_inner_texts() for row in page.locator(rows).all()]
    return [[" ".join(cell.split()) for cell in row] for row in found]


def test_the_first_card_has_the_people_and_who_came_back(url: str, open_page: OpenPage) -> None:
    page = open_page(url, width=1280, height=800)
    usage = page.request.get(f"{url}api/v1/usage").json()
    assert page.locator("#cards .card h2").all_inner_texts() == ["People", "days", "age", "pause"]
    expect(page.locator("#state-text")).not_to_contain_text("at least")  # those of one histogram are fewer
    head, day, week, month = cells(page, ".people table:not(.back) tr")
    assert head == ["People", "", "23 Feb to 1 Mar 2026", "16 to 22 Feb 2026"]
    assert [row[0] for row in (day, week, month)] == ["a day", "a week", "in 28 days"]
    assert week[2:] == [f"{usage['people']['values'][i]:,.0f}" for i in (-1, -2)]
    assert day[2] == "{} ({} to {})".format(*(f"{usage['a_day'][part][-1]:,.0f}" for part in ("values", "low", "high")))
    assert len(re.findall("V", page.locator(".people path.range").first.get_attribute("d") or "")) == STEPS
    head, *groups = cells(page, ".people .back tr")
    assert (head, len(groups)) == (["First week", "New people", "1 week", "2 weeks"], 6)
    known = usage["retention"][-2]["shares"]
    assert groups[-2][2].startswith(f"{100 * known['values'][0]:.0f} % {100 * known['low'][0]:.0f} to ")
    assert [row[-1] for row in groups[-2:]] == ["", ""]  # not known yet
    choose_span(page, "step")
    page.locator("#back").click()
    expect(page.locator(".people thead").first).to_contain_text("16 to 22 Feb 2026")
    page.select_option("#cohort", "0")
    expect(page.locator(".people .hint")).to_have_text("who used the application and reported it, of every version")
    page.goto(f"{url}?find=age")
    expect(page.locator("#cards .card h2")).to_have_text(["age"])


def test_the_page_of_an_attribute_has_the_curves_and_the_whole_triangle(url: str, open_page: OpenPage) -> None:
    page = open_page(url, width=360, scheme="dark")
    assert (page.evaluate("document.documentElement.scrollWidth"), findings(page)) == (360, [])
    page.get_by_role("link", name="People", exact=True).focus()
    page.keyboard.press("Enter")
    page.wait_for_selector("#people canvas")
    unfold(page)
    assert (page.evaluate("document.documentElement.scrollWidth"), findings(page)) == (360, [])
    expect(page.locator("#attribute-title")).to_have_text("age")
    usage = page.request.get(f"{url}{page.locator('#people-json').get_attribute('href')}").json()
    assert page.locator("#people-back tbody tr").count() == len(usage["retention"]) == STEPS
    assert (
        " ".join(page.locator("#people-legend li").nth(1).inner_text().split())
        == f"a week {usage['people']['values'][-1]:,.0f}"
    )
    shoot(page, "usage-phone")
    page.emulate_media(media="print")
    assert box_of(page.locator("#people-back"))["height"] > 8 * 30, "the whole table is printed"


def test_one_step_and_one_question_are_said_in_words(open_page: OpenPage) -> None:
    """The ages have no value of their own, and the level ends."""
    merged = AGE | {"values": ["a", "b"], "recipe": {"measure": "age", "edges": [2]}}
    survey = small_survey(merged | {"level": [EXACT | {"lifetime_reports": 3}]}, step_seconds=WEEK, title="שלום")
    with demo_page(survey, demo_of(survey, UsageValues(survey, 50, 1, 3))) as address:
        page = open_page(address)
        [head, [name, _, people, before]] = cells(page, ".people tr")
        assert (head[3], name, people.isdigit(), before) == ("–", "a week", True, "–")
        expect(page.locator(".people .hint")).to_contain_text("or more: devices that made all their reports are missing")
        page.close()
