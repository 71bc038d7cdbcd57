"""Fixtures of the tests of the live page: a browser, its pages and a demo."""

import shutil
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from ldpstream.producers.values import MarkovValues
from ldpstream.services.demo import Demo
from tests.conftest import give_up
from tests.publishing.page.page_rig import PATIENCE_MS, SURVEY, OpenPage, demo_page

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
QUIET = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
         "--disable-component-update", "--disable-sync"]  # fmt: skip


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    if CHROMIUM is None:
        give_up("no Chromium on this machine")
    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=CHROMIUM, args=QUIET, timeout=PATIENCE_MS)
        yield found
        found.close()


@pytest.fixture
def open_page(browser: Browser) -> Iterator[OpenPage]:
    """Opens an address and waits until the page is drawn. After the test, checks for errors and for requests to other hosts."""
    opened: list[tuple[Any, str, list[str], list[str]]] = []

    def open_it(url: str, width: int = 1300, height: int = 900, scheme: Any = "light", zone: str = "UTC") -> Page:
        viewport: Any = {"width": width, "height": height}
        context = browser.new_context(viewport=viewport, color_scheme=scheme, timezone_id=zone)
        page = context.new_page()
        said: list[str] = []
        asked: list[str] = []
        # errors of a closed page are ignored: on a busy machine a request may be under way when the server ends
        page.on("console", lambda message: None if page.is_closed() else said.append(message.text))
        page.on("pageerror", lambda error: None if page.is_closed() else said.append(str(error)))
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
        host = url.partition("?")[0]
        assert all(address.startswith((host, f"blob:{host}")) for address in asked)


@pytest.fixture(scope="module")
def demo() -> Iterator[tuple[Demo, str]]:
    demo = Demo(SURVEY, MarkovValues(SURVEY, 4000, 6, 3), 3)
    demo.run(lambda step, made: None)
    with demo_page(SURVEY, demo) as address:
        yield demo, address
