"""Tests of the live page in a real browser: content, controls, keyboard, themes, small screens, no requests to other hosts.

If LDPSTREAM_SCREENSHOTS names a folder, the tests write screenshots and the times to first paint into this folder.
"""

import json
import os
import re
import shutil
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from estimators.publishing.api import create_api
from estimators.publishing.page_server import PageServer
from estimators.publishing.publication import Diagnostics, Frequencies, Jump, Publication, Span, conclude, spans, spent
from estimators.publishing.results import MemoryResults
from estimators.publishing.schedule import Progress
from ldpstream.demo import Demo
from producers.values import MarkovValues
from surveys import Survey, load_survey, parse_survey
from tests.conftest import give_up

PATIENCE_MS = 120_000
expect.set_options(timeout=PATIENCE_MS)
SAMPLES = Path(__file__).parents[2] / "surveys" / "samples"
SURVEY = load_survey(SAMPLES / "demo.toml")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
QUIET = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
         "--disable-component-update", "--disable-sync"]  # fmt: skip
SHOTS = os.environ.get("LDPSTREAM_SCREENSHOTS")

OpenPage = Callable[..., Page]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    if CHROMIUM is None:
        give_up("no Chromium on this machine")
    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=CHROMIUM, args=QUIET)
        yield found
        found.close()


@pytest.fixture
def open_page(browser: Browser) -> Iterator[OpenPage]:
    """Opens an address and waits until the page is drawn. After the test, checks for errors and for requests to other hosts."""
    opened: list[tuple[Any, str, list[str], list[str]]] = []

    def open_it(url: str, width: int = 1300, height: int = 900, scheme: Any = "light") -> Page:
        context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)
        page = context.new_page()
        said: list[str] = []
        asked: list[str] = []
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("request", lambda request: asked.append(request.url))
        opened.append((context, url, said, asked))
        page.goto(url)
        page.wait_for_selector("html[data-ready=yes]", timeout=PATIENCE_MS)
        return page

    yield open_it
    for context, url, said, asked in opened:
        context.close()
        assert not said
        assert asked
        assert all(address.startswith(url) for address in asked)


def shoot(page: Page, name: str) -> None:
    if SHOTS:
        page.screenshot(path=f"{SHOTS}/{name}.png", full_page=True)
        paint = page.evaluate("performance.getEntriesByName('first-contentful-paint')[0]?.startTime")
        with open(f"{SHOTS}/first_paint.jsonl", "a") as file:
            file.write(json.dumps({"page": name, "first_contentful_paint_ms": paint}) + "\n")


@pytest.fixture(scope="module")
def demo() -> Iterator[tuple[Demo, str]]:
    demo = Demo(SURVEY, MarkovValues(SURVEY, 4000, 6, 3), 3)
    demo.run(lambda step, made: None)
    api = create_api(SURVEY, demo.service.results, demo.service.rejected, truth=lambda p: demo.truth.of(SURVEY, p))
    server = PageServer(api, "127.0.0.1", 0)
    yield demo, server.url
    server.close()


def test_the_page_shows_privacy_and_estimates(demo: tuple[Demo, str], open_page: OpenPage) -> None:
    pipeline, url = demo
    page = open_page(url)
    assert page.title() == f"{SURVEY.name} · ldpstream"
    assert page.locator("#attributes tbody tr").count() == len(SURVEY.attributes)
    (p,) = pipeline.service.results.get(["screen|window|5"])
    assert p is not None
    spent_text = page.locator("#attributes tbody tr").first.inner_text()
    assert f"{p.privacy['standard'].eps_t:.4g} of {p.privacy['standard'].eps_inf:.4g}" in spent_text
    assert page.locator("#attributes meter").first.get_attribute("value") == str(p.privacy["standard"].eps_t)
    chances = "right guess among 6 values: 59.6 % from one report, 91.6 % from all, up to 100.0 % after a year of changes"
    assert chances in spent_text
    assert "be the sender's true value" in page.locator("footer").inner_text()
    assert f"{p.reports:,} reports" in page.locator("#summary").inner_text()
    page.locator("#numbers summary").click()
    row = page.locator("#values tr").nth(1).inner_text().split("\t")
    found, truth = p.estimators["ibu"].estimate(), pipeline.truth.of(SURVEY, p)
    assert truth is not None
    assert row[0] == SURVEY.attributes[0].label(0)
    assert row[1] == f"{100 * found.frequencies[0]:.2f} %"
    assert row[-1] == f"{100 * truth[0]:.2f} %"
    shoot(page, "desktop")


def test_the_page_shows_the_promise_of_a_spaced_level(open_page: OpenPage) -> None:
    survey = load_survey(SAMPLES / "changing.toml")
    demo = Demo(survey, MarkovValues(survey, 4000, 50, 3), 3)
    demo.run(lambda step, made: None)
    server = PageServer(create_api(survey, demo.service.results, demo.service.rejected, truth=None), "127.0.0.1", 0)
    try:
        page = open_page(server.url)
        shoot(page, "spaced")
        said = page.locator("#attributes tbody tr").first.inner_text()
        for words in (
            "daily, after 2 reports",
            "2 of 365, whatever the values",
            "at most 1 within any 25 steps, whatever the values",
            "35.2 % from one report (also from all reports, if the value depends only on values of this attribute",
        ):
            assert words in said, said
        assert page.locator("#attributes meter").first.get_attribute("max") == "365"
        sample = "A step counts at most about one device in 25 at level daily; the intervals hold for all people."
        assert sample not in page.locator("#summary").inner_text()
        page.locator("#span").select_option("step")
        expect(page.locator("#summary")).to_contain_text(sample)
        page.close()  # close the page before the server: a closed connection would be an error on the page
    finally:
        server.close()
    reports = {(p.span, p.step): p.reports for p in demo.service.results.history()}
    assert [reports["window", step] for step in (24, 49)] == [4000, 4000]
    assert 100 < reports["step", 30] < 250


def test_every_control_changes_the_page(demo: tuple[Demo, str], open_page: OpenPage) -> None:
    pipeline, url = demo
    page = open_page(url)
    page.select_option("#estimator", "mi")
    page.select_option("#post", "norm-sub")
    expect(page.locator("#histogram-csv")).to_have_attribute("href", re.compile("post=norm-sub"))
    page.select_option("#span", "step")
    expect(page.locator("#summary")).to_contain_text("in step 5")
    page.locator("#step").fill("2")
    expect(page.locator("#summary")).to_contain_text("in step 2")
    assert not page.locator("#follow").is_checked()
    (p,) = pipeline.service.results.get(["screen|step|2"])
    assert p is not None
    assert f"{p.reports:,} reports" in page.locator("#summary").inner_text()
    with page.expect_download() as download:
        page.locator("#histogram-csv").click()
    lines = download.value.path().read_text().splitlines()
    assert lines[0].startswith("value,label,frequency")
    assert len(lines) == SURVEY.attributes[0].k + 1
    page.locator("[data-attribute=latency_ms]").click()
    expect(page.locator("#histogram-title")).to_have_text("latency_ms")
    assert page.url.endswith("#latency_ms")
    assert page.locator("#estimator option").count() == 3
    assert page.locator("#post").is_enabled()


def test_the_page_is_usable_by_keyboard(demo: tuple[Demo, str], open_page: OpenPage) -> None:
    page = open_page(demo[1])
    page.locator("#histogram").focus()
    page.keyboard.press("ArrowRight")
    assert page.locator("#readout").inner_text().startswith(f"{SURVEY.attributes[0].label(0)}: ")
    page.keyboard.press("End")
    assert page.locator("#readout").inner_text().startswith(f"{SURVEY.attributes[0].label(SURVEY.attributes[0].k - 1)}: ")
    page.locator("[data-attribute=latency_ms]").focus()
    page.keyboard.press("Enter")
    expect(page.locator("#histogram-title")).to_have_text("latency_ms")
    assert page.evaluate("document.activeElement.dataset.attribute") == "latency_ms"  # the page is redrawn and keeps the focus
    named = "[...document.querySelectorAll('select, input, button')].every((e) => e.labels?.length || e.textContent.trim())"
    assert page.evaluate(named)


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


def test_a_phone_needs_no_sideways_scrolling(demo: tuple[Demo, str], open_page: OpenPage) -> None:
    page = open_page(demo[1], width=360, height=740)
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    shoot(page, "phone")


def test_the_readout_follows_step_and_attribute(demo: tuple[Demo, str], open_page: OpenPage) -> None:
    """At another step the readout shows the same value. For another attribute the readout is empty until a value is chosen."""
    page = open_page(demo[1])
    readout = page.locator("#readout")
    unread = readout.inner_text()
    page.locator("#histogram").focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    first = readout.inner_text()
    assert first.startswith(f"{SURVEY.attributes[0].label(1)}: ")
    page.locator("#step").fill("2")
    expect(readout).not_to_have_text(first)
    assert readout.inner_text().startswith(f"{SURVEY.attributes[0].label(1)}: ")
    page.locator("#histogram").focus()
    page.keyboard.press("ArrowRight")  # continues from the chosen value
    assert readout.inner_text().startswith(f"{SURVEY.attributes[0].label(2)}: ")
    page.locator("[data-attribute=latency_ms]").click()
    assert readout.inner_text() == unread
    expect(page.locator("#histogram-title")).to_have_text("latency_ms")
    assert readout.inner_text() == unread


def many(k: int, attributes: int, steps: int) -> tuple[Survey, MemoryResults]:
    """Returns a survey with many values, and synthetic publications of every step."""
    level = ({"name": "standard", "mechanism": "L-OLH", "eps_inf": 2.0, "eps_1": 1.0},)
    asked = tuple({"name": f"a{i:02}", "size": k, "level": level} for i in range(attributes))
    survey = parse_survey({
        "name": "many", "start": datetime(2026, 1, 5, tzinfo=UTC), "step_seconds": 60, "window_steps": 2, "lateness_steps": 0,
        "collection": "smp", "attribute": asked,
    })  # fmt: skip
    rng, results = np.random.default_rng(1), MemoryResults()
    for step in range(steps):
        extend(survey, results, step, rng)
    return survey, results


HONEST = Diagnostics(mass_below_zero=0.0, fit_z={"standard": -5.9}, drift_sigma=6.1, drift_value=0, drift_p=6e-7)


def extend(
    survey: Survey,
    results: MemoryResults,
    step: int,
    rng: np.random.Generator,
    said: Diagnostics = HONEST,
    of_window: Diagnostics = HONEST,
    jump: Jump | None = None,
) -> None:
    """Publish one more step, with the diagnostics of the step and of the window, and the jump of the first attribute."""
    made = []
    for i, attribute in enumerate(survey.attributes):
        frequencies = rng.dirichlet(np.full(attribute.k, 0.05))
        result = Frequencies(
            frequencies=frequencies.tolist(), standard_errors=[0.01] * attribute.k, iterations=0, converged=True
        )
        for span in spans(attribute):
            filtered = span == "filtered"
            names = ("filter",) if filtered else ("mi", "ibu", "mle")
            made += [
                Publication(
                    survey=survey.name, fingerprint=survey.fingerprint.hex(), attribute=attribute.name, step=step,
                    span=span, panes=1, reports=1000, complete=True, estimators=dict.fromkeys(names, result),
                    privacy={"standard": spent(survey.mechanisms[i][0], step + 1)},
                    diagnostics=said if span == "step" else of_window, change=jump if filtered and i == 0 else None,
                )
            ]  # fmt: skip
    assert results.save(made, results.progress(), Progress(first_step=0, next_step=step + 1))


def test_the_page_shows_many_values_and_new_steps(open_page: OpenPage) -> None:
    survey, results = many(1000, 20, 50)
    server = PageServer(create_api(survey, results, lambda: {"step too old": 1234}), "127.0.0.1", 0)
    try:
        page = open_page(server.url)
        shoot(page, "many")
        assert page.locator("#state-text").inner_text() == "live, step 49"
        assert page.locator("#attributes tbody tr").count() == 20
        assert "1,234" in page.locator("#rejected").inner_text()
        extend(survey, results, 50, np.random.default_rng(2))
        expect(page.locator("#state-text")).to_have_text("live, step 50")
        assert page.locator("#step-text").inner_text() == "50"
        page.close()  # close the page before the server: a closed connection would be an error on the page
    finally:
        server.close()


def test_a_large_domain_shows_its_most_frequent_values(open_page: OpenPage) -> None:
    survey, results = many(20_000, 1, 2)
    server = PageServer(create_api(survey, results, dict), "127.0.0.1", 0)
    try:
        page = open_page(server.url)
        assert "The 2,000 most frequent of 20,000 values" in page.locator("#summary").inner_text()
        shoot(page, "large")
        page.close()
    finally:
        server.close()


def silent(survey: Survey, results: MemoryResults, step: int) -> None:
    """Publish one more step, in which nobody reported."""
    made = []
    for i, mechanisms in enumerate(survey.mechanisms):
        nothing = [m.empty_table() for m in mechanisms]
        spans: tuple[Span, ...] = ("step", "window")
        made += [conclude(survey, i, step, span, [nothing], True) for span in spans]
    assert results.save(made, results.progress(), Progress(first_step=0, next_step=step + 1))


@pytest.mark.parametrize("width", [1300, 360])
def test_a_step_without_reports_is_a_gap_with_a_message(open_page: OpenPage, width: int) -> None:
    survey, results = many(10, 2, 3)
    silent(survey, results, 3)
    extend(survey, results, 4, np.random.default_rng(3))
    silent(survey, results, 5)
    server = PageServer(create_api(survey, results, dict), "127.0.0.1", 0)
    try:
        page = open_page(server.url, width=width)
        assert "Nobody reported in the window that ends with step 5" in page.locator("#summary").inner_text()
        assert page.locator("#histogram").get_attribute("aria-label") == "Histogram of a00, nobody reported"
        page.locator("#histogram").focus()
        page.keyboard.press("ArrowRight")
        assert page.locator("#readout").inner_text() == "0: no estimate, since nobody reported"
        page.locator("#numbers summary").click()
        assert page.locator("#values tr").nth(1).inner_text().split("\t") == ["0", "–", "–", "–", "–"]
        assert "most frequent in the last step with reports" in page.locator("#series-hint").inner_text()
        assert all(text.endswith(" –") for text in page.locator("#legend li").all_inner_texts())
        if width > 620:
            assert page.locator("#attributes tbody tr").first.locator("td").last.inner_text() == "nobody reported"
        shoot(page, f"nobody_{width}")
        page.select_option("#order", "frequency")
        page.locator("#step").fill("4")
        expect(page.locator("#summary")).to_contain_text("1,000 reports")
        page.close()
    finally:
        server.close()


def test_a_withheld_interval_is_explained(open_page: OpenPage) -> None:
    survey, results = many(500, 1, 1)
    (m,) = survey.mechanisms[0]
    table = m.tabulate(m.simulate(np.arange(500) % 250, np.random.default_rng(1)))
    made = [conclude(survey, 0, 1, "window", [[table]], True), conclude(survey, 0, 1, "step", [[table]], True)]
    assert results.save(made, results.progress(), Progress(first_step=0, next_step=2))
    server = PageServer(create_api(survey, results, dict), "127.0.0.1", 0)
    try:
        page = open_page(server.url)
        summary = page.locator("#summary")
        expect(summary).to_contain_text("500 reports in 1 step up to step 1, no intervals. Intervals would not cover")
        page.locator("#histogram").focus()
        page.keyboard.press("ArrowRight")
        assert "%, without an interval" in page.locator("#readout").inner_text()
        assert "where they can be trusted" in page.locator("#series-hint").inner_text()
        shoot(page, "withheld")
        page.select_option("#estimator", "mi")
        expect(summary).to_contain_text("95 % intervals.")
        assert "would not cover" not in summary.inner_text()
        page.close()
    finally:
        server.close()


def test_a_survey_without_reports_has_no_lines(open_page: OpenPage) -> None:
    survey, results = many(10, 1, 0)
    for step in range(3):
        silent(survey, results, step)
    server = PageServer(create_api(survey, results, dict), "127.0.0.1", 0)
    try:
        page = open_page(server.url)
        assert page.locator("#series-hint").inner_text() == "Nobody reported in these steps."
        assert page.locator("#legend li").count() == 0
        shoot(page, "nobody_ever")
        page.close()
    finally:
        server.close()


@pytest.mark.parametrize("z", [-6.1, 1e6])
@pytest.mark.parametrize("width", [1300, 360])
def test_the_page_warns_about_poor_fit_and_drift(open_page: OpenPage, z: float, width: int) -> None:
    survey, results = many(10, 2, 2)
    server = PageServer(create_api(survey, results, dict), "127.0.0.1", 0)
    try:
        page = open_page(server.url, width=width)
        assert page.locator("#attributes .warning").count() == 0
        said = Diagnostics(mass_below_zero=0.0, fit_z={"standard": z}, drift_sigma=5.1, drift_value=3, drift_p=5e-7)
        differing = msgspec.structs.replace(
            HONEST, levels_sigma=7.2, levels_value=4, levels_pair=["bold", "strict"], levels_p=1e-9
        )
        extend(survey, results, 2, np.random.default_rng(2), said, differing)
        expect(page.locator("#attributes .warning:visible")).to_have_count(6)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert page.locator("#attributes tbody tr").nth(1).locator(".warning").all_inner_texts() == [
            f"standard: forged reports or a wrong survey (z = {z:.1f})",
            f"{survey.attributes[0].label(3)} moved by 5.1 standard errors in a step",
            "bold and strict differ in 4 by 7.2 standard errors: the estimate over both is biased",
        ]
        shoot(page, f"warning_{width}")
        page.close()
    finally:
        server.close()


# ---- the filtered curve


def test_the_filtered_curve_has_one_estimator(demo: tuple[Demo, str], open_page: OpenPage) -> None:
    """The other spans keep their estimator and post-processing."""
    pipeline, url = demo
    page = open_page(url)
    assert page.locator("#span option").all_inner_texts() == ["sliding window", "one step", "filtered curve"]
    page.select_option("#estimator", "mi")
    page.select_option("#post", "norm-sub")
    expect(page.locator("#histogram-csv")).to_have_attribute("href", re.compile("post=norm-sub"))
    page.select_option("#span", "filtered")
    (p,) = pipeline.service.results.get(["screen|filtered|5"])
    assert p is not None
    said = f"{p.reports:,} reports in step 5. The filtered curve is estimated from all steps so far, with 95 % intervals."
    expect(page.locator("#summary")).to_contain_text(said)
    assert page.locator("#estimator").is_disabled()
    assert page.locator("#post").is_disabled()
    assert page.locator("#estimator option").all_inner_texts() == ["filter (all steps)"]
    for link in ("#histogram-csv", "#histogram-json", "#series-csv", "#series-json"):
        href = page.locator(link).get_attribute("href")
        assert href is not None
        assert "span=filtered" in href
        assert "post" not in href
        assert page.request.get(url.rstrip("/") + href).ok
    page.locator("#numbers summary").click()
    row = page.locator("#values tr").nth(1).inner_text().split("\t")
    assert row[1] == f"{100 * p.estimators['filter'].estimate().frequencies[0]:.2f} %"
    assert "Filter (all steps), the 5 values" in page.locator("#series-hint").inner_text()
    assert page.locator("#changes li").all_inner_texts() == ["No jump was detected in these steps."]
    shoot(page, "filtered")
    page.select_option("#span", "step")
    expect(page.locator("#histogram-csv")).to_have_attribute("href", re.compile("span=step&estimator=mi&post=norm-sub"))
    assert page.locator("#changes li").count() == 0


JUMPS = {
    3: Jump(changed_at=2, value=4, size=0.032, low=0.029, high=0.035, sigma=7.1),
    4: Jump(changed_at=4, value=1, size=-0.00321, low=-0.004, high=-0.0024, sigma=9.0),
}
MARKS = """([box, step, r, g, b]) => {  // columns of this colour, and the step's column, as parts of the canvas's width
  const canvas = document.querySelector(box + " canvas");
  const { data, width, height } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
  const tall = [];
  for (let x = 0; x < width; x += 1) {
    let found = 0;
    for (let y = 0; y < height; y += 1) {
      const at = 4 * (y * width + x);
      found += data[at] === r && data[at + 1] === g && data[at + 2] === b;
    }
    if (found > 0.4 * height) tall.push(x / width);
  }
  const [outer, plot] = [canvas.getBoundingClientRect(), document.querySelector(box + " .u-over").getBoundingClientRect()];
  return [tall, (plot.x - outer.x + plot.width * step) / outer.width, outer.width];
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1300, 360])
def test_a_jump_is_listed_and_marked_in_its_values_colour(open_page: OpenPage, width: int, scheme: str) -> None:
    survey, results = many(10, 2, 3)
    for step in range(3, 6):
        extend(survey, results, step, np.random.default_rng(step), jump=JUMPS.get(step))
    frequencies = [0.0, 0.0, 0.05, 0.1, 0.5, 0.15, 0.0, 0.0, 0.12, 0.08]  # value 1 has no line
    curves = [p for p in results.history() if (p.attribute, p.span) == ("a00", "filtered")]
    curves = [
        msgspec.structs.replace(
            p, estimators={"filter": msgspec.structs.replace(p.estimators["filter"], frequencies=frequencies)}
        )
        for p in curves
    ]
    assert results.save(curves, results.progress(), Progress(first_step=0, next_step=6))
    server = PageServer(create_api(survey, results, dict), "127.0.0.1", 0)
    try:
        page = open_page(server.url, width=width, scheme=scheme)
        assert page.locator("#changes li").count() == 0
        page.select_option("#span", "filtered")
        changes = page.locator("#changes li")
        expect(changes).to_have_count(2)
        assert changes.all_inner_texts() == [
            "4 jumped by +3.2 percentage points (+2.9 to +3.5) at step 2",
            "1 jumped by -0.32 percentage points (-0.40 to -0.24) at step 4",
        ]
        legend = page.locator("#legend li")
        assert legend.all_inner_texts()[0] == "4 50.0 %"
        shown = "e => getComputedStyle(e).backgroundColor"
        colour = legend.first.locator(".key").evaluate(shown)
        assert changes.first.locator(".key").evaluate(shown) == colour
        assert changes.last.locator(".key").count() == 1
        red, green, blue = (int(part) for part in re.findall(r"\d+", colour))
        marks, expected, pixels = page.evaluate(MARKS, ["#series", (2 + 0.6) / (5 + 1.2), red, green, blue])
        assert marks, "no mark at the jump"
        assert page.locator("#series-hint").inner_text().endswith("A dashed line marks a jump.")
        assert all(abs(mark - expected) < 2 / pixels for mark in marks)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        shoot(page, f"jump_{width}_{scheme}")
        page.close()
    finally:
        server.close()


@pytest.mark.parametrize("width", [1300, 360])
def test_the_overview_warns_of_a_jump_for_every_span(open_page: OpenPage, width: int) -> None:
    survey, results = many(10, 2, 3)
    quiet = msgspec.structs.replace(HONEST, fit_z={})
    extend(survey, results, 3, np.random.default_rng(3), quiet, quiet, JUMPS[3])
    server = PageServer(create_api(survey, results, dict), "127.0.0.1", 0)
    try:
        page = open_page(server.url, width=width)
        warning = page.locator("#attributes .warning")
        for span in ("window", "step", "filtered"):
            page.select_option("#span", span)
            expect(page.locator("#histogram-csv")).to_have_attribute("href", re.compile(f"span={span}"))
            assert warning.all_inner_texts() == ["4 jumped by +3.2 percentage points at step 2 (95 % interval +2.9 to +3.5)"]
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        shoot(page, f"jump_warning_{width}")
        page.close()
    finally:
        server.close()


def test_the_curve_predicts_a_step_without_reports(open_page: OpenPage) -> None:
    survey, results = many(10, 1, 3)
    (curve,) = results.get(["a00|filtered|2"])
    assert curve is not None
    silent(survey, results, 3)
    predicted = msgspec.structs.replace(curve, step=3, reports=0, complete=False)
    assert results.save([predicted], results.progress(), Progress(first_step=0, next_step=4))
    server = PageServer(create_api(survey, results, dict), "127.0.0.1", 0)
    try:
        page = open_page(server.url)
        assert "there is no estimate" in page.locator("#summary").inner_text()
        page.select_option("#span", "filtered")
        expect(page.locator("#summary")).to_have_text(
            "Nobody reported in step 3: the curve is predicted from earlier steps. "
            "The filtered curve is estimated from all steps so far, with 95 % intervals. Incomplete: reports may be missing."
        )
        assert page.locator("#histogram").get_attribute("aria-label") == "Histogram of a00, 10 values"
        page.locator("#histogram").focus()
        page.keyboard.press("ArrowRight")
        frequency = predicted.estimators["filter"].frequencies[0]
        assert frequency is not None
        assert page.locator("#readout").inner_text().startswith(f"0: {100 * frequency:.2f} %, between ")
        assert page.locator("#attributes tbody tr").first.locator("td").last.inner_text() != "nobody reported"
        hint = page.locator("#series-hint").inner_text()
        assert "most frequent now" in hint
        assert hint.endswith("A step without reports is predicted from earlier steps.")
        assert not any(text.endswith(" –") for text in page.locator("#legend li").all_inner_texts())
        shoot(page, "predicted")
        page.close()
    finally:
        server.close()


def test_a_curve_before_the_first_report_has_no_numbers(open_page: OpenPage) -> None:
    survey, results = many(3, 1, 1)
    (curve,) = results.get(["a00|filtered|0"])
    assert curve is not None
    nothing = msgspec.structs.replace(
        curve.estimators["filter"], frequencies=[None] * 3, standard_errors=[None] * 3, converged=False
    )
    empty = msgspec.structs.replace(curve, reports=0, panes=0, estimators={"filter": nothing})
    assert results.save([empty], results.progress(), Progress(first_step=0, next_step=1))
    server = PageServer(create_api(survey, results, dict), "127.0.0.1", 0)
    try:
        page = open_page(server.url)
        page.select_option("#span", "filtered")
        expect(page.locator("#summary")).to_have_text("Nobody has reported up to step 0: there is no estimate.")
        assert page.locator("#histogram").get_attribute("aria-label") == "Histogram of a00, nobody reported"
        assert page.locator("#attributes tbody tr").first.locator("td").last.inner_text() == "nobody reported"
        assert page.locator("#series-hint").inner_text() == "Nobody reported in these steps."
        page.close()
    finally:
        server.close()


def test_an_attribute_without_a_filtered_curve_does_not_offer_it(open_page: OpenPage) -> None:
    """Every attribute stays in the overview, and the page falls back to the window."""
    level = ({"name": "standard", "mechanism": "L-OLH", "eps_inf": 2.0, "eps_1": 1.0},)
    survey = parse_survey({
        "name": "two", "start": datetime(2026, 1, 5, tzinfo=UTC), "step_seconds": 60, "window_steps": 2, "lateness_steps": 0,
        "collection": "smp", "attribute": ({"name": "small", "size": 10, "level": level},
                                           {"name": "large", "size": 10_001, "level": level}),
    })  # fmt: skip
    results = MemoryResults()
    for step in range(2):
        extend(survey, results, step, np.random.default_rng(step))
    server = PageServer(create_api(survey, results, dict), "127.0.0.1", 0)
    try:
        page = open_page(server.url)
        page.select_option("#span", "filtered")
        expect(page.locator("#summary")).to_contain_text("The filtered curve is estimated")
        assert page.locator("#attributes tbody tr").count() == 2
        page.locator("[data-attribute=large]").click()
        expect(page.locator("#histogram-title")).to_have_text("large")
        assert page.locator("#span option").all_inner_texts() == ["sliding window", "one step"]
        assert page.locator("#span").input_value() == "window"
        assert page.locator("#estimator").is_enabled()
        assert page.locator("#state-text").inner_text() == "live, step 1"
        page.locator("[data-attribute=small]").click()
        expect(page.locator("#span option")).to_have_count(3)
        page.close()
    finally:
        server.close()
