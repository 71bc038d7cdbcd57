"""The start page of several surveys shows new estimates, also while somebody uses its table."""

import numpy as np
from msgspec.structs import replace
from playwright.sync_api import Browser, expect

from ldpstream.publishing.answers.responses import Served
from ldpstream.publishing.api.app import create_surveys_api
from ldpstream.publishing.page.server import PageServer

from .page_rig import extend, many


def test_the_start_page_shows_new_estimates_and_keeps_the_focus(browser: Browser) -> None:
    survey, results = many(5, attributes=1, steps=1)
    survey = replace(survey, title="<b>Travel</b> & more")
    server = PageServer(create_surveys_api({survey.name: Served(survey, results, dict)}), "127.0.0.1", 0)
    page = browser.new_page()
    page.clock.install()
    try:
        page.goto(server.url)
        expect(page.locator("#about")).to_have_text("1 survey, 1 with warnings.")
        expect(page.locator(".warning")).to_have_text("the next estimate is overdue")
        link = page.get_by_role("link", name="<b>Travel</b> & more")
        for step, used in enumerate((page.get_by_role("region", name="Surveys"), link), 1):
            used.focus()
            extend(survey, results, step, np.random.default_rng(step))
            page.clock.fast_forward(6000)
            expect(page.locator("tbody")).to_contain_text(f"step {step}")
            expect(used).to_be_focused()
        assert page.locator("#surveys b").count() == 0
        background = "getComputedStyle(document.body).backgroundColor"
        light = page.evaluate(background)
        page.emulate_media(color_scheme="dark")
        assert page.evaluate(background) != light
        page.evaluate("localStorage.setItem('theme', 'light')")
        page.reload()
        assert page.evaluate(background) == light  # chosen on the page of a survey
        page.evaluate("document.documentElement.dataset.theme = 'dark'")
        page.emulate_media(media="print")
        assert page.evaluate("getComputedStyle(document.body).color") == "rgb(22, 32, 44)", "dark letters on white paper"
    finally:
        page.close()
        server.close()
