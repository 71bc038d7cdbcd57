"""Tests of the filtered curve on the live page: the choice of the span, jumps, predicted steps, attributes without a filtered
curve."""

import re
from urllib.parse import urljoin

import numpy as np
import pytest
from msgspec.structs import replace
from playwright.sync_api import expect

from ldpstream.publishing.estimates.publication import Jump
from ldpstream.publishing.progress import Progress
from ldpstream.services.demo import Demo

from .page_rig import OpenPage, choose_span, extend, many, served, silent, unfold, written


def test_the_filtered_curve_has_one_estimator(demo: tuple[Demo, str], open_page: OpenPage) -> None:
    """The other spans keep their estimator and post-processing."""
    pipeline, url = demo
    page = open_page(f"{url}?attribute=screen")
    unfold(page)
    assert page.locator("#span label").all_inner_texts() == ["hour", "6 hours", "filtered"]
    page.select_option("#estimator", "mi")
    page.select_option("#post", "norm-sub")
    expect(page.locator("#histogram-csv")).to_have_attribute("href", re.compile("post=norm-sub"))
    choose_span(page, "filtered")
    (p,) = pipeline.service.results.get(["screen|filtered|5"])
    assert p is not None
    people = f"{p.reports:,} reports of at least {p.reports:,} people in this step."
    said = f"{people} The filtered curve is estimated from 6 steps so far, with 95 % intervals."
    expect(page.locator("#summary")).to_contain_text(said)
    assert page.locator("#estimator").is_disabled()
    assert page.locator("#post").is_disabled()
    assert page.locator("#estimator option").all_inner_texts() == ["filter (all steps)"]
    for link in ("#histogram-csv", "#histogram-json", "#series-csv", "#series-json"):
        href = page.locator(link).get_attribute("href")
        assert href is not None
        assert "span=filtered" in href
        assert "post" not in href
        assert page.request.get(urljoin(url, href)).ok
    row = page.locator("#values tr").nth(1).inner_text().split("\t")
    assert row[1] == written(p.estimators["filter"].estimate(), 0)
    assert "Filter (all steps), the 5 most frequent values" in page.locator("#series-hint").inner_text()
    (said,) = page.locator("#changes li").all_inner_texts()
    assert re.fullmatch(
        r"No jump was detected in these steps\. At the noise of the latest step with reports, a jump of [\d.]+ percentage "
        r"points or more is found within five steps in about 9 of 10 cases\.",
        said,
    )
    choose_span(page, "step")
    expect(page.locator("#histogram-csv")).to_have_attribute("href", re.compile("span=step&estimator=mi&post=norm-sub"))
    assert page.locator("#changes li").count() == 0


JUMPS = {
    3: Jump(changed_at=2, value=4, size=0.032, low=0.029, high=0.035, sigma=7.1),
    4: Jump(changed_at=4, value=1, size=-0.00321, low=-0.004, high=-0.0024, sigma=9.0),
}
MARKS = """([steps, rgb]) => {  // the steps at whose place most of the chart's height has this colour
  const canvas = document.querySelector("#series canvas");
  const { data, width, height } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
  const [outer, plot] = [canvas, document.querySelector("#series .u-over")].map((each) => each.getBoundingClientRect());
  const at = (step) => Math.round((plot.x - outer.x + plot.width * (step + 1.1) / (6 + 0.2)) * width / outer.width);
  const has = (x) => (_, y) => rgb.every((c, j) => data[4 * (y * width + x) + j] === c);
  return steps.filter((step) => Array.from({ length: height }, has(at(step))).filter(Boolean).length > 0.4 * height);
}"""


@pytest.mark.parametrize(("width", "scheme"), [(1300, "light"), (360, "dark")])
def test_a_jump_is_listed_and_marked_in_its_values_colour(open_page: OpenPage, width: int, scheme: str) -> None:
    survey, results = many(10, 2, 3)
    for step in range(3, 6):
        extend(survey, results, step, np.random.default_rng(step), jump=JUMPS.get(step))
    frequencies = [0.0, 0.0, 0.05, 0.1, 0.5, 0.15, 0.0, 0.0, 0.12, 0.08]  # value 1 has no line
    curves = [p for p in results.history() if (p.attribute, p.span) == ("a00", "filtered")]
    curves = [replace(p, estimators={"filter": replace(p.estimators["filter"], frequencies=frequencies)}) for p in curves]
    assert results.save(curves, results.progress(), Progress(first_step=0, next_step=6))
    with served(survey, results) as url:
        page = open_page(f"{url}?attribute=a00", width=width, scheme=scheme)
        assert page.locator("#changes li").count() == 0
        choose_span(page, "filtered")
        changes = page.locator("#changes li")
        expect(changes).to_have_count(2)
        assert changes.all_inner_texts() == [
            "4 jumped by +3.2 percentage points (+2.9 to +3.5) at 5 Jan 2026, 00:02–00:03 UTC (step 2)",
            "1 jumped by −0.32 percentage points (−0.40 to −0.24) at 5 Jan 2026, 00:04–00:05 UTC (step 4)",
        ]
        legend = page.locator("#legend li")
        assert legend.all_inner_texts()[0] == "4 50 % (48 to 52 %) ×"
        shown = "e => getComputedStyle(e).backgroundColor"
        colour = legend.first.locator(".key").evaluate(shown)
        assert changes.first.locator(".key").evaluate(shown) == colour
        assert changes.last.locator(".key").count() == 1
        assert page.evaluate(MARKS, [list(range(5)), list(map(int, re.findall(r"\d+", colour)))]) == [2]
        assert page.locator("#series-hint").inner_text().endswith("A dashed line in a value's colour marks a jump.")
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        page.close()


def test_the_curve_predicts_a_step_without_reports(open_page: OpenPage) -> None:
    survey, results = many(10, 1, 3)
    (curve,) = results.get(["a00|filtered|2"])
    assert curve is not None
    silent(survey, results, 3)
    predicted = replace(curve, step=3, reports=0, complete=False)
    assert results.save([predicted], results.progress(), Progress(first_step=0, next_step=4))
    with served(survey, results) as url:
        page = open_page(f"{url}?attribute=a00")
        assert "there is no estimate" in page.locator("#summary").inner_text()
        choose_span(page, "filtered")
        expect(page.locator("#summary")).to_contain_text(
            "No report counts so far in this step: the curve is predicted from earlier steps. "
            "The filtered curve is estimated from 1 step so far, with 95 % intervals. Incomplete: reports may be missing."
        )
        assert (page.locator("#histogram").get_attribute("aria-label") or "").startswith("Histogram of a00, 10 values.")
        page.locator("#histogram").focus()
        page.keyboard.press("ArrowRight")
        share = written(predicted.estimators["filter"].estimate(), 0)
        assert page.locator("#readout").inner_text().startswith(f"0: {share}, between ")
        hint = page.locator("#series-hint").inner_text()
        assert "the 5 most frequent values, with" in hint
        assert hint.endswith("A step without reports is predicted from earlier steps.")
        assert not any(text.endswith(" – ×") for text in page.locator("#legend li").all_inner_texts())
        page.close()
