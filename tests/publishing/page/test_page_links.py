"""Tests of the page's address, times, comparison, warnings of silence, downloads, and the reader without JavaScript."""

import re
from collections.abc import Callable
from urllib.parse import parse_qs, urlsplit

import msgspec
import numpy as np
import pytest
from playwright.sync_api import Browser, Page, expect

from ldpstream.services.demo import Demo

from .page_rig import HONEST, SURVEY, OpenPage, box_of, choose_span, extend, many, served, unfold

QUIET = msgspec.structs.replace(HONEST, fit_z={})
SHOWN = ("#attribute-title", "#when", "#summary", "#legend", "#series-hint", "#comparison-summary", "#period-text")


def shown(page: Page) -> list[str]:
    return [page.locator(place).inner_text() for place in SHOWN]


def parameters(url: str) -> dict[str, str]:
    return {name: value for name, (value,) in parse_qs(urlsplit(url).query).items()}


def wait_for_address(page: Page, reached: Callable[[dict[str, str]], bool]) -> dict[str, str]:
    """Waits until the address has the parameters wanted. The page writes its address at most four times a second."""
    page.wait_for_url(lambda url: reached(parameters(url)))
    return parameters(page.url)


def test_a_link_shows_what_its_sender_saw(open_page: OpenPage) -> None:
    """The link shows the same after further steps. The Back button returns to each earlier choice; a reload still follows."""
    survey, results = many(30, 2, 6)
    rng = np.random.default_rng(7)
    with served(survey, results) as url:
        page = open_page(url)
        wait_for_address(page, lambda found: not found)  # the latest step
        extend(survey, results, 6, rng, QUIET, QUIET)
        expect(page.locator("#period-text")).to_have_text("5 Jan 2026, 00:05–00:07")
        page.context.grant_permissions(["clipboard-read", "clipboard-write"])
        page.locator("#copy").click()
        expect(page.locator("#copy")).to_have_text("Link copied")
        assert parameters(page.evaluate("navigator.clipboard.readText()")) == {"step": "6"}
        page.reload()
        page.wait_for_selector("html[data-ready=yes]")
        assert page.locator("#follow").is_checked()
        page.get_by_role("link", name="a01").click()
        expect(page.locator("#attribute-title")).to_have_text("a01")
        unfold(page)
        choose_span(page, "step")
        page.select_option("#estimator", "mi")
        page.select_option("#order", "frequency")
        page.select_option("#show", "10")
        for _ in range(2):
            page.locator("#back").click()
        expect(page.locator("#when")).to_contain_text("(step 4)")
        expect(page.locator("#comparison-summary")).to_contain_text("(step 3)")
        page.select_option("#against", "time")
        page.locator("#before-date").fill("2026-01-05T00:03")
        expect(page.locator("#comparison-summary")).to_contain_text("(step 2)")
        page.locator("#histogram").focus()
        for key in ("ArrowRight", "ArrowRight", "Enter"):  # adds a value to the curves, or removes it
            page.keyboard.press(key)
        expect(page.locator("#default-curves")).to_be_visible()
        expect(page.locator("#legend li")).not_to_have_count(5)
        wanted = {
            "attribute": "a01", "span": "step", "estimator": "mi", "order": "frequency", "show": "10", "step": "4",
            "until": "6", "before": "2",
        }  # fmt: skip
        sent = wait_for_address(page, lambda found: found.items() >= wanted.items() and "values" in found)
        assert len(sent["values"].split(",")) == page.locator("#legend li").count()
        seen, link = shown(page), page.url
        extend(survey, results, 7, rng, QUIET, QUIET)
        other = open_page(link)
        assert shown(other) == seen
        assert not other.locator("#follow").is_checked()
        page.go_back()
        expect(page.locator("#legend li")).to_have_count(5)
        for step in (3, None):
            page.go_back()
            expect(page.locator("#comparison-summary")).to_contain_text(f"(step {step})" if step else "(step 3)")
        assert page.locator("#order").input_value() == "frequency"
        other.locator("#time summary").click()
        other.locator("#follow").check()
        expect(other.locator("#when")).to_contain_text("(step 7)")
        left = {name: value for name, value in sent.items() if name not in ("step", "until")}
        wait_for_address(other, lambda found: found == left)
        page.close()
        other.close()


def test_a_link_that_shows_nothing_says_so(open_page: OpenPage) -> None:
    survey, results = many(3, 1, 3)
    with served(survey, results) as url:
        page = open_page(f"{url}?attribute=gone&step=999&values=5&span=year&zoom=9-2&order=x&show=-1&before=1e9")
        notice = page.locator("#notice-text")
        expect(notice).to_have_text("This survey has no attribute “gone”. There is no estimate of step 999 yet.")
        expect(page.locator("#overview")).to_be_hidden()
        page.locator("#notice-latest").click()
        expect(page.locator("#overview")).to_be_visible()
        expect(notice).to_be_hidden()
        wait_for_address(page, lambda found: not found)
        page.goto(f"{url}?attribute=a00&step=999")
        expect(page.locator("#estimate")).to_be_hidden()
        page.goto(f"{url}?attribute=a00&step=2&before=999")
        expect(notice).to_have_text("There is no estimate of step 999 yet.")
        expect(page.locator("#estimate")).to_be_visible()
        expect(page.locator("#comparison")).to_be_hidden()
        page.goto(f"{url}?attribute=a00&step=2&before=2")
        expect(notice).to_have_text("A comparison needs two different times.")
        page.close()


def test_times_are_in_the_chosen_zone(demo: tuple[Demo, str], open_page: OpenPage) -> None:
    page = open_page(f"{demo[1]}?attribute=screen", zone="Asia/Tokyo")
    unfold(page, "time")
    when = page.locator("#when")
    assert when.inner_text() == "5 Jan 2026, 09:00–15:00 Asia/Tokyo (00:00–06:00 UTC, step 5)"
    page.locator("#zone").click()
    expect(when).to_have_text("5 Jan 2026, 00:00–06:00 UTC (step 5)")
    expect(page.locator("#period-text")).to_have_text("5 Jan 2026, 00:00–06:00")
    date = page.locator("#step-date")
    expect(date).to_have_value("2026-01-05T06:00")
    date.fill("2026-01-05T03:59")  # the last step that ended by then
    expect(when).to_have_text("5 Jan 2026, 00:00–03:00 UTC (step 2)")
    page.locator("#zone").click()
    expect(date).to_have_value("2026-01-05T12:00")  # the end of the step, in Tokyo
    date.fill("2026-01-05T10:00")
    expect(when).to_contain_text("00:00–01:00 UTC, step 0)")
    page.locator("#zone").click()
    page.reload()
    page.wait_for_selector("html[data-ready=yes]")
    assert page.locator("#zone").text_content() == "Times: UTC"


def test_values_are_found_ordered_zoomed_and_explained(open_page: OpenPage) -> None:
    survey, results = many(200, 1, 3)
    with served(survey, results) as url:
        page = open_page(f"{url}?attribute=a00")
        unfold(page, "numbers", "research")
        rows = page.locator("#values tbody tr")
        expect(rows).to_have_count(25)
        page.locator("#find").fill("19")
        page.keyboard.press("Enter")
        assert page.evaluate("document.activeElement.id") == "histogram"
        assert page.locator("#order").input_value() == "frequency"  # the default if not all values are shown
        page.select_option("#order", "value")
        labels = [v for v in range(200) if "19" in str(v)]
        expect(page.locator("#summary")).to_contain_text(f"{len(labels)} values of 200 with “19”.")
        assert page.locator("#values tbody tr > :nth-child(1)").all_text_contents() == [str(v) for v in labels]
        page.select_option("#order", "frequency")
        shares = [float(text.split()[0]) for text in page.locator("#values tbody tr > :nth-child(2)").all_text_contents()]
        assert shares == sorted(shares, reverse=True)
        page.locator("#find").fill("")
        expect(rows).to_have_count(25)
        box = box_of(page.locator("#histogram .u-over"))
        page.mouse.move(box["x"] + 0.3 * box["width"], box["y"] + 50)
        page.mouse.down()
        page.mouse.move(box["x"] + 0.6 * box["width"], box["y"] + 60, steps=4)
        page.mouse.up()
        first, last = map(int, wait_for_address(page, lambda found: "zoom" in found)["zoom"].split("-"))
        assert 0 < first < last < 25
        page.locator("#zoom-all").click()
        wait_for_address(page, lambda found: "zoom" not in found)
        page.locator("#summary .why", has_text="intervals").focus()
        page.keyboard.press("Enter")
        expect(page.locator("#why-interval")).to_contain_text("contains the true share in about 95 of 100 cases")
        page.keyboard.press("Escape")
        expect(page.locator("#why-interval")).to_be_hidden()
        explained = page.locator(".why").evaluate_all("all => all.map(e => e.popoverTargetElement !== null)")
        assert explained
        assert all(explained), "a button without an explanation"
        page.close()


def test_two_times_are_compared(demo: tuple[Demo, str], open_page: OpenPage) -> None:
    page = open_page(f"{demo[1]}?attribute=screen&step=5&before=1&estimator=mi&span=step")
    unfold(page)
    found = page.request.get(demo[1] + "api/v1/attributes/screen/comparison?before=1&step=5&estimator=mi&span=step").json()
    row = page.locator("#values tbody tr").first.inner_text().replace("−", "-").split("\t")
    assert row[0] == "home"
    assert float(row[6]) / 100 == pytest.approx(found["differences"][0], abs=1e-3)
    page.locator("#comparison-summary .why").nth(1).click()
    expect(page.locator("[popover]:popover-open")).to_contain_text("people whose values alternate")
    page.keyboard.press("Escape")
    for step in range(4, 0, -1):  # the earlier time stays earlier
        page.locator("#back").click()
        expect(page.locator("#when")).to_contain_text(f"(step {step})")
    expect(page.locator("#comparison-summary")).to_contain_text("(step 0)")
    page.go_back()
    page.select_option("#estimator", "ibu")
    expect(page.locator("#comparison-summary")).to_contain_text("IBU (likelihood)")
    choose_span(page, "window")
    page.select_option("#against", "time")
    expect(page.locator("#comparison-summary")).to_contain_text("The two windows share steps")
    page.locator("#differences").focus()
    page.keyboard.press("ArrowRight")
    assert re.search(r"home: .*, change [+−]?[\d.]+ points, 95 % interval", page.locator("#readout").inner_text())
    for chart in ("histogram", "series", "comparison", "reports"):
        with page.expect_download() as download:
            page.locator(f"#{chart}-png").click()
        name = {"series": "over_time", "comparison": "difference"}.get(chart, chart)
        assert download.value.suggested_filename.startswith(f"{SURVEY.name}-screen-window-{name}-step-")
        assert download.value.path().read_bytes()[:4] == b"\x89PNG"
        assert download.value.path().stat().st_size > 5000


def test_a_comparison_since_yesterday_moves_with_the_step(open_page: OpenPage) -> None:
    survey, results = many(3, 1, 0)
    survey = msgspec.structs.replace(survey, step_seconds=28_800)  # a day has three steps
    rng = np.random.default_rng(1)
    for step in range(5):
        extend(survey, results, step, rng, QUIET, QUIET)
    with served(survey, results) as url:
        page = open_page(f"{url}?attribute=a00")
        page.select_option("#against", label="vs yesterday")
        said = page.locator("#comparison-summary")
        expect(said).to_contain_text("(step 1) to")
        expect(said).to_contain_text("(step 4)")
        wait_for_address(page, lambda found: found == {"attribute": "a00", "before": "-3"})
        extend(survey, results, 5, rng, QUIET, QUIET)
        expect(said).to_contain_text("(step 2) to")
        page.locator("#back").click()
        expect(said).to_contain_text("(step 0) to")
        page.select_option("#against", "time")
        page.locator("#before-date").fill("2026-01-06T15:00")
        expect(said).to_contain_text("(step 2) to")
        wait_for_address(page, lambda found: found["before"] == "2")
        page.select_option("#against", label="vs yesterday")
        page.locator("#back").click()
        expect(page.locator("#comparison")).to_be_hidden()
        expect(page.locator("#no-comparison")).to_have_text("There is no earlier period to compare with.")
        page.close()


def test_a_reader_without_scripts_gets_the_way_to_the_numbers(demo: tuple[Demo, str], browser: Browser) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(f"{demo[1]}?attribute=latency_ms")
    expect(page.locator("noscript p")).to_contain_text("This page needs JavaScript. The API has the same numbers")
    context.close()


def test_the_page_tries_again_after_an_error(demo: tuple[Demo, str], browser: Browser) -> None:
    context = browser.new_context()
    page = context.new_page()
    body = '{"detail": "the store of results does not answer"}'
    page.route("**/api/v1/status*", lambda route: route.fulfill(status=503, content_type="application/problem+json", body=body))
    page.goto(demo[1])
    expect(page.locator("#state-text")).to_have_text("the store of results does not answer")
    assert page.locator("#dot").get_attribute("class") == "dot lost"
    page.unroute("**/api/v1/status*")
    expect(page.locator("#dot")).to_have_attribute("class", "dot live")
    expect(page.locator("#cards .card")).to_have_count(2)
    context.close()
