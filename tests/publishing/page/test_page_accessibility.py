"""Accessibility of the page, checked with axe-core in a browser: no finding on a desktop or a phone."""

import msgspec
import numpy as np
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page

from ldpstream.services.demo import Demo

from .page_rig import HONEST, OpenPage, extend, many, served, unfold


def findings(page: Page) -> list[str]:
    """Returns the broken rules, each with the first element that breaks it."""
    return [f"{found['id']}: {found['nodes'][0]['html']}" for found in Axe().run(page).response["violations"]]


def test_axe_finds_nothing_on_a_desktop(demo: tuple[Demo, str], open_page: OpenPage) -> None:
    page = open_page(demo[1])
    unfold(page)
    assert findings(page) == []
    page = open_page(f"{demo[1]}?attribute=screen&before=2&values=0,3")
    unfold(page)
    page.locator("#summary .why").first.click()
    assert findings(page) == []
    page.evaluate("document.body.append(document.createElement('button'))")
    assert [found.partition(":")[0] for found in findings(page)] == ["button-name"], "axe must find a planted mistake"


def test_axe_finds_nothing_on_a_dark_phone_with_warnings(open_page: OpenPage) -> None:
    survey, results = many(100, 3, 3)
    said = msgspec.structs.replace(HONEST, fit_z={"standard": 7.0}, drift_p=1e-9)
    extend(survey, results, 3, np.random.default_rng(3), said, said)
    with served(survey, results, {"step too old": 3}, late_ms=300_000) as url:
        page = open_page(f"{url}?attribute=gone&before=9", width=360, scheme="dark")
        assert page.locator("#alerts").is_visible()
        assert page.locator("#notice").is_visible()
        assert findings(page) == []
        page.locator("#cards a").first.click()
        page.wait_for_selector("#legend li")
        unfold(page)
        assert findings(page) == []
        page.close()
