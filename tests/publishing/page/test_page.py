"""Tests of the live page in a real browser: content, controls, keyboard, themes, small screens, no requests to other hosts.

If LDPSTREAM_SCREENSHOTS names a folder, the tests write screenshots into this folder.
"""

import re
from contextlib import closing

import msgspec
import numpy as np
import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from ldpstream.mechanisms.wording import up
from ldpstream.producers.values import MarkovValues
from ldpstream.promises.device_chance import guesses
from ldpstream.publishing.answers.responses import Served
from ldpstream.publishing.answers.sentences import percent
from ldpstream.publishing.api.app import create_api
from ldpstream.publishing.estimates.publication import Crowd, Diagnostics
from ldpstream.publishing.page.server import PageServer
from ldpstream.services.demo import Demo
from ldpstream.surveys import load_survey
from tests.faults.memory_store import MemoryResults
from tests.small_survey import small_survey

from . import page_rig as rig
from .page_rig import HONEST, SAMPLES, SURVEY, OpenPage, box_of, choose_span, extend, many, served, shoot, silent, unfold

GUESSES = guesses(SURVEY, 0, SURVEY.mechanisms[0][0], 6)


def card(page: Page, attribute: str) -> Locator:
    return page.locator("#cards .card", has=page.get_by_role("link", name=attribute, exact=True))


def test_the_first_screen_answers(demo: tuple[Demo, str], open_page: OpenPage) -> None:
    """The sentences and the cards are on the first screen; the numbers are those of the answer."""
    url = demo[1]
    page = open_page(url, width=1280, height=800)
    assert page.title() == f"{SURVEY.name} · ldpstream"
    answer = page.request.get(f"{url}api/v1/overview").json()
    assert page.locator("#sentences p").all_inner_texts() == [f"{s['lead']}: {s['text']}" for s in answer["sentences"]]
    people = max(of["people_at_least"] for of in answer["attributes"])
    said = f"On time · 5 Jan 2026, 00:00–06:00 UTC · at least {people:,} people · simulated people"
    assert page.locator("#state-text").inner_text() == said
    assert box_of(page.locator("#sentences"))["y"] < 120
    rows = card(page, "screen").locator("tbody tr")
    assert box_of(rows.last)["y"] < 800
    screen = answer["attributes"][0]
    assert rows.locator("th").all_inner_texts() == screen["labels"]
    share, _, ends = percent(*(screen[name][0] for name in ("frequencies", "low", "high"))).partition(", ")
    assert rows.first.locator("td").nth(1).inner_text() == f"{share} ({ends})"
    assert card(page, "latency_ms").locator("tbody th").all_inner_texts()[:2] == ["mean", "median"]
    chances = [chance["text"] for chance in page.request.get(f"{url}api/v1/survey").json()["label"]["chances"]]
    assert page.locator("#chances strong").all_inner_texts() == [*chances[:2], chances[3]]
    page.locator("#label summary").click()
    assert page.locator("#label-lines dt").count() == 8
    assert page.request.get(f"{url}{page.locator('#label a').get_attribute('href')}").ok
    shoot(page, "desktop")


def test_a_clear_change_is_bold_and_a_search_finds_values(open_page: OpenPage) -> None:
    survey, results = many(200, 8, 4)
    with served(survey, results) as url:
        page = open_page(url)
        answer = page.request.get(f"{url}api/v1/overview").json()
        for of in answer["attributes"]:
            bold = [row.locator("strong").count() == 1 for row in card(page, of["attribute"]).locator("tbody tr").all()]
            assert bold == of["clear"]
        assert any(any(of["clear"]) for of in answer["attributes"])
        page.locator("#search").fill("199")
        expect(page.locator("#found")).to_have_text("8 attributes with “199”")
        assert set(page.locator("#cards tbody th").all_inner_texts()) == {"199"}
        page.locator("#search").fill("a03")
        expect(page.locator("#cards .card")).to_have_count(1)
        page.locator("#search").press("Enter")
        expect(page.locator("#attribute-title")).to_have_text("a03")
        page.go_back()
        expect(page.locator("#search")).to_have_value("a03")
        page.close()


def test_bad_input_is_said_in_words(open_page: OpenPage) -> None:
    """No sideways scrolling for a long or right-to-left value; no noise for a few reports; a reason for no estimate."""
    level = {"name": "standard", "mechanism": "GRR", "eps": 2.0}
    values = ["שלום", "x" * 60 + " y" * 40, *"abcdefgh"]
    survey = small_survey({"name": "odd", "values": values, "level": [level]}, name="odd")
    said = "Too few reports to tell these values apart."
    for people in (1, 5000):
        demo = Demo(survey, MarkovValues(survey, people, 2, 3), 3)
        demo.run(lambda step, made: None)
        with served(survey, demo.service.results) as url:
            page = open_page(url, width=360)
            assert page.evaluate("document.documentElement.scrollWidth") <= 360
            assert (said in page.locator("#cards").inner_text()) == (people == 1)
            page.goto(f"{url}?attribute=odd")
            page.wait_for_selector("#legend li")
            assert page.evaluate("document.documentElement.scrollWidth") <= 360
            page.close()
    results = MemoryResults()
    silent(survey, results, 0, complete=False)
    with served(survey, results) as url:
        page = open_page(url)
        assert page.locator("#cards .card").inner_text().split("\n")[-1] == "No report counts so far."
        page.close()


def test_a_survey_without_estimates_says_so(browser: Browser) -> None:
    survey, _ = many(3, 1, 0)
    with served(survey, MemoryResults()) as url:
        page = browser.new_page()
        page.goto(url)
        expect(page.locator("#waiting")).to_have_text("There is no estimate yet: the first period is still open.")
        expect(page.locator("#state-text")).to_contain_text("Waiting for the first step to close")
        page.close()


def test_an_attributes_page_shows_estimates_and_privacy(demo: tuple[Demo, str], open_page: OpenPage) -> None:
    pipeline, url = demo
    page = open_page(f"{url}?attribute=screen")
    assert page.locator("#levels").is_hidden()
    unfold(page)
    assert page.locator("#levels tbody tr").count() == 1
    (p,) = pipeline.service.results.get(["screen|window|5"])
    assert p is not None
    cells = page.locator("#levels tbody tr").first.locator("th, td").all_inner_texts()
    assert [re.sub(r"\s+", " ", cell) for cell in cells] == [
        "standard after 6 reports",
        f"{GUESSES['guess']} whole device: {GUESSES['guess_device']} {up(p.privacy['standard'].eps_t)} nats",
        "91.6 % whole device: 91.6 % 4 nats",
        f"{GUESSES['guess_any_values']} whole device: no useful limit "
        f"≤ {up(p.privacy['standard'].eps_sequence)} nats",
        "no useful limit whole device: no useful limit ≤ 16,200 nats",
    ]  # fmt: skip
    promise = page.locator("#promise").inner_text()
    assert "the chance of a right guess from one report is 59.6 % (2 nats)" in promise
    assert "no number of reports raises the loss above 4 nats (chance 91.6 %)" in promise
    assert "be the sender's true answer" in page.locator("footer").inner_text()
    people = -(-p.reports // 6)
    summary = f"{p.reports:,} reports of at least {people:,} people in 6 steps, with 95 % intervals. is the truth. Grey bars"
    assert re.sub(r"\s+", " ", page.locator("#summary").inner_text()).startswith(summary)
    assert page.locator("#when").inner_text() == "5 Jan 2026, 00:00–06:00 UTC (step 5)"
    row = page.locator("#values tr").nth(1).inner_text().split("\t")
    found, truth = p.estimators["eb"].estimate(), pipeline.truth.of(p).shares
    assert truth is not None
    assert row[0] == SURVEY.attributes[0].label(0)
    assert row[1] == rig.written(found, 0)
    assert row[5] == f"{100 * truth[0]:.1f} %"


def test_the_page_shows_the_promise_of_a_spaced_level(open_page: OpenPage) -> None:
    survey = load_survey(SAMPLES / "changing.toml")
    demo = Demo(survey, MarkovValues(survey, 4000, 50, 3), 3)
    demo.run(lambda step, made: None)
    with served(survey, demo.service.results) as url:
        page = open_page(f"{url}?attribute=screen")
        unfold(page)
        said = page.locator("#levels tbody tr").first.inner_text() + page.locator("#promise").inner_text()
        for words in (
            "after 2 reports",
            "one report is 35.2 % (1 nat)",
            "All reports of this attribute together lose at most 365 nats, whatever the values.",
            "A device reports once in 25 steps: at most 1 nat within any 25 steps, whatever the values.",
        ):
            assert words in said, said
        sample = "A step counts at most about one device in 25 at level daily; the intervals hold for all people."
        assert sample not in page.locator("#summary").inner_text()
        choose_span(page, "step")
        expect(page.locator("#summary")).to_contain_text(sample)
        page.close()  # close the page before the server: a closed connection would be an error on the page
    reports = {(p.span, p.step): p.reports for p in demo.service.results.history()}
    assert [reports["window", step] for step in (24, 49)] == [4000, 4000]
    assert 100 < reports["step", 30] < 250


def test_a_file_and_another_attribute_are_those_of_the_chosen_step(demo: tuple[Demo, str], open_page: OpenPage) -> None:
    pipeline, url = demo
    page = open_page(f"{url}?attribute=screen&span=step&step=2&estimator=mi")
    unfold(page)
    assert not page.locator("#follow").is_checked()
    (p,) = pipeline.service.results.get(["screen|step|2"])
    assert p is not None
    assert f"{p.reports:,} reports" in page.locator("#summary").inner_text()
    with page.expect_download() as download:
        page.locator("#histogram-csv").click()
    lines = download.value.path().read_text().splitlines()
    assert lines[0].startswith("value,label,frequency")
    assert len(lines) == SURVEY.attributes[0].k + 1
    page.select_option("#attribute", "latency_ms")
    expect(page.locator("#attribute-title")).to_have_text("latency_ms")
    assert "attribute=latency_ms" in page.url
    assert page.locator("#estimator option").count() == 4
    assert page.locator("#post").is_enabled()


def test_the_page_is_usable_by_keyboard(demo: tuple[Demo, str], open_page: OpenPage) -> None:
    page = open_page(demo[1])
    page.get_by_role("link", name="screen").focus()
    page.keyboard.press("Enter")
    expect(page.locator("#attribute-title")).to_have_text("screen")
    assert page.evaluate("document.activeElement.tagName") == "H2"
    page.locator("#histogram").focus()
    page.keyboard.press("ArrowRight")
    assert page.locator("#readout").inner_text().startswith(f"{SURVEY.attributes[0].label(0)}: ")
    page.keyboard.press("End")
    assert page.locator("#readout").inner_text().startswith(f"{SURVEY.attributes[0].label(SURVEY.attributes[0].k - 1)}: ")
    page.locator("#legend button").nth(1).focus()
    page.keyboard.press("Enter")
    expect(page.locator("#legend li")).to_have_count(4)
    assert page.evaluate("document.activeElement.closest('#legend') !== null")  # the page is redrawn and keeps the focus
    page.locator("#span input").first.focus()
    page.keyboard.press("ArrowLeft")
    expect(page.locator("#when")).to_contain_text("(step 5)")
    named = "(e) => e.labels?.length || e.textContent.trim() || e.ariaLabel"
    assert page.evaluate(f"[...document.querySelectorAll('select, input, button')].every({named})")


def test_the_theme_can_be_dark_or_light(demo: tuple[Demo, str], open_page: OpenPage) -> None:
    dark = open_page(demo[1], scheme="dark")
    background = "getComputedStyle(document.body).backgroundColor"
    first = dark.evaluate(background)
    shoot(dark, "dark")
    dark.locator("#theme").click()  # selects the light theme, independent of the system's theme
    assert dark.evaluate(background) != first
    dark.reload()
    dark.wait_for_selector("html[data-ready=yes]")
    assert dark.evaluate(background) != first
    assert dark.locator("#theme").inner_text() == "Theme: light"
    other = dark.context.new_page()
    other.goto(demo[1])
    other.locator("#theme").click()  # selects the dark theme, also in the other tab
    expect(dark.locator("#theme")).to_have_text("Theme: dark")
    assert dark.evaluate(background) == first


def test_a_phone_needs_no_sideways_scrolling(demo: tuple[Demo, str], open_page: OpenPage) -> None:
    page = open_page(demo[1], width=360, height=740)
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    assert box_of(page.locator("#cards tbody").first)["y"] < 740, "the first card is on the first screen"
    shoot(page, "phone")
    page.get_by_role("link", name="screen").click()
    page.wait_for_selector("#legend li")
    assert box_of(page.locator("#histogram"))["y"] < 740, "the histogram begins on the first screen"
    unfold(page)
    page.wait_for_selector("#values tbody tr")
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    wrapped = """() => [...document.querySelectorAll("td.number, #levels strong")].filter((part) => {
        const range = document.createRange();
        range.selectNodeContents(part);
        return part.textContent.includes(" %") && range.getClientRects().length > 1;
    }).map((part) => part.textContent)"""
    assert page.evaluate(wrapped) == []
    narrow = "(part) => { part.style.cssText = 'white-space: normal; display: block; width: 1ch'; }"
    page.locator("#values td").first.evaluate(narrow)
    assert len(page.evaluate(wrapped)) == 1, "a planted mistake"


def test_the_page_shows_many_values_and_new_steps(open_page: OpenPage) -> None:
    survey, results = many(1000, 20, 50)
    with served(survey, results, {"step too old": 1234}) as url:
        page = open_page(url)
        assert page.locator("#cards .card").count() == 20
        assert page.locator("#period-text").inner_text() == "5 Jan 2026, 00:48–00:50"
        unfold(page, "operators")
        assert "1,234" in page.locator("#rejected").inner_text()
        page.get_by_role("link", name="a00").click()
        expect(page.locator("#when")).to_contain_text("(step 49)")
        assert "The 25 most frequent of 1,000 values; the others have" in page.locator("#summary").inner_text()
        assert "Solid whiskers hold for each value, dashed ones only on average" in page.locator("#summary").inner_text()
        extend(survey, results, 50, np.random.default_rng(2))
        expect(page.locator("#when")).to_contain_text("(step 50)")
        page.locator("#to-overview").click()
        extend(survey, results, 51, np.random.default_rng(3))
        expect(page.locator("#period-text")).to_have_text("5 Jan 2026, 00:50–00:52")
        page.close()  # close the page before the server: a closed connection would be an error on the page


def test_a_reload_asks_for_the_servers_clock_anew(open_page: OpenPage) -> None:
    survey, results = many(5, 1, 1)
    now_ms = [survey.closes_ms(0)]
    with closing(PageServer(create_api(Served(survey, results, dict, clock=lambda: now_ms[0])), "127.0.0.1", 0)) as server:
        page = open_page(server.url)
        expect(page.locator("#state-text")).not_to_contain_text("hours ago")
        now_ms[0] += 5 * 3_600_000
        page.reload()  # no new estimate: the status has the same ETag
        expect(page.locator("#state-text")).to_contain_text("5 hours ago")
        page.close()


@pytest.mark.parametrize("width", [1300, 360])
def test_a_step_without_reports_is_a_gap_with_a_message(open_page: OpenPage, width: int) -> None:
    survey, results = many(10, 2, 3)
    silent(survey, results, 3)
    extend(survey, results, 4, np.random.default_rng(3))
    silent(survey, results, 5)
    with served(survey, results) as url:
        page = open_page(f"{url}?attribute=a00", width=width)
        assert "Nobody reported in this window: there is no estimate." in page.locator("#summary").inner_text()
        assert (page.locator("#histogram").get_attribute("aria-label") or "").startswith("Histogram of a00, nobody reported.")
        assert (
            page.locator("#alerts-list").inner_text()
            == "Nobody reported in the latest step, 5 Jan 2026, 00:05–00:06 UTC (step 5)."
        )
        page.locator("#histogram").focus()
        page.keyboard.press("ArrowRight")
        assert page.locator("#readout").inner_text() == "0: no estimate, since nobody reported"
        unfold(page)
        page.wait_for_selector("#values tr")
        assert page.locator("#values tr").nth(1).inner_text().split("\t")[:5] == ["0", "–", "–", "–", "–"]
        assert "most frequent values in the last step with reports" in page.locator("#series-hint").inner_text()
        assert all(text.endswith(" – ×") for text in page.locator("#legend li").all_inner_texts())
        page.select_option("#order", "frequency")
        choose_span(page, "step")
        page.locator("#back").click()
        expect(page.locator("#summary")).to_contain_text("1,000 reports")
        page.close()


def test_the_promise_behind_a_relay_follows_the_promise_to_everybody(open_page: OpenPage) -> None:
    survey, results = many(10, 1, 2)
    relayed = msgspec.structs.replace(survey, relay="required", lateness_steps=2, crowd=20_000)
    for asked, shown in ((survey, False), (relayed, True)):
        with served(asked, results) as url:
            page = open_page(f"{url}?attribute=a00")
            unfold(page)
            said = page.locator("#promise").inner_text()
            assert ("if at least 20,000 honest people report at the same steps" in said) == shown
            assert ("the same people at all steps" in said) == shown  # the level is memoized
            assert not shown or said.index("2 nats") < said.index("These promises hold against everybody")
            page.close()


def test_the_page_warns_about_a_crowd_that_is_too_small(open_page: OpenPage) -> None:
    survey, results = many(10, 2, 2)
    crowd = Crowd(assumed=20_000, reports={"nobody": 0, "standard": 1000, "strict": 20_000}, reached=False)
    memoized = msgspec.structs.replace(crowd, reports={"few": 2, "standard": 1000}, memoized=["standard"])
    extend(survey, results, 2, np.random.default_rng(2), crowd=crowd)
    with served(survey, results) as url:
        page = open_page(f"{url}?attribute=a00&span=step")
        text = "evel standard has 1,000 reports, fewer than the crowd of 20,000: the promise behind the relay is not claimed"
        expect(page.locator("#alerts-list")).to_have_text(f"a00: l{text} in the latest step.")
        expect(page.locator("#summary")).to_contain_text(f"L{text} in this step.")
        extend(survey, results, 3, np.random.default_rng(3), crowd=memoized)
        page.goto(f"{url}?attribute=a00&span=step")
        expect(page.locator("#summary")).to_contain_text(f"L{text} for any report of the people who reported in this step.")
        extend(survey, results, 4, np.random.default_rng(4), crowd=msgspec.structs.replace(memoized, reached=True))
        page.goto(f"{url}?attribute=a00&span=step")
        expect(page.locator("#when")).to_contain_text("step 4")
        assert page.locator("#alerts").is_hidden()
        assert "crowd" not in page.locator("#summary").inner_text()
        page.close()


@pytest.mark.parametrize(("z", "width"), [(-6.1, 1300), (1e6, 360)])
def test_the_page_warns_about_poor_fit_and_drift(open_page: OpenPage, z: float, width: int) -> None:
    survey, results = many(10, 2, 2)
    with served(survey, results) as url:
        page = open_page(url, width=width)
        assert page.locator("#alerts .warning").count() == 0
        said = Diagnostics(mass_below_zero=0.0, fit_z={"standard": z}, drift_sigma=5.1, drift_value=3, drift_p=5e-7)
        differing = msgspec.structs.replace(
            HONEST, levels_sigma=7.2, levels_value=4, levels_pair=["bold", "strict"], levels_p=1e-9
        )
        extend(survey, results, 2, np.random.default_rng(2), said, differing)
        expect(page.locator("#alerts .warning")).to_have_count(6)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert page.locator("#alerts .warning:visible").count() == 4
        assert page.locator("#alerts-count").inner_text() == "2 more warnings"
        page.locator("#alerts-count").click()
        assert [text for text in page.locator("#alerts .warning").all_inner_texts() if text.startswith("a01")] == [
            f"a01: standard: the counts do not fit the mechanism (z = {z:.1f}). Reports are forged, or the survey is wrong.",
            "a01: bold and strict differ in 4 by 7.2 standard errors: the estimate over both can be biased.",
            "a01: 3 moved by 5.1 standard errors in the latest step.",
        ]
        page.locator("#alerts .warning .link", has_text="a01").first.click()
        expect(page.locator("#attribute-title")).to_have_text("a01")
        page.close()
