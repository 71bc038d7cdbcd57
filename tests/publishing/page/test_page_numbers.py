"""Tests of the mean and the percentiles on the live page."""

import re

from playwright.sync_api import expect

from ldpstream.publishing.answers import sentences
from ldpstream.publishing.estimates.frequencies import NUMBERS
from ldpstream.services.demo import Demo

from .page_rig import SURVEY, OpenPage, choose_span

LATENCY = "latency_ms"  # the demo's attribute with bins


def test_the_page_shows_the_mean_and_the_percentiles(demo: tuple[Demo, str], open_page: OpenPage) -> None:
    pipeline, url = demo
    page = open_page(f"{url}?attribute={LATENCY}")
    expect(page.locator("#summary")).to_contain_text("dashed ones only on average over the values")
    for span in ("window", "step", "filtered"):
        choose_span(page, span)
        expect(page.locator("#quantiles-json")).to_have_attribute("href", re.compile(f"numbers.span={span}&"))
        (p,) = pipeline.service.results.get([f"{LATENCY}|{span}|5"])
        assert p is not None
        for name, item in zip(NUMBERS, page.locator("#quantiles-legend li").all(), strict=True):
            number = p.numbers[name]
            assert number.low is not None
            assert number.high is not None
            text = sentences.median(name, number.value, number.low, number.high).rpartition(" is ")[2]
            text += f", truth {pipeline.truth.of(p).numbers[name]:.4g}"
            assert text in item.inner_text(), (span, name)
    with page.expect_download() as download:
        page.locator("#quantiles-csv").click()
    lines = download.value.path().read_text().splitlines()
    assert lines[0].startswith("step,start,end,reports,complete,number,value,low,high,truth,")
    assert len(lines) == 1 + 6 * len(NUMBERS)
    for _ in range(3):
        page.locator("#back").click()
    for legend in ("#quantiles-period", "#legend-period"):
        expect(page.locator(legend)).to_contain_text("step 2")
    with page.expect_download() as download:
        page.locator("#quantiles-png").click()
    assert download.value.suggested_filename == f"{SURVEY.name}-{LATENCY}-filtered-numbers-step-0-5.png"
