"""Measures the page: bytes over the wire, time to first paint, and smoothness, with 20 attributes of 1000 values.

    python -m tests.publishing.page.page_speed

Bytes are those of the bodies of all files that a first visit loads, compressed as the server sends them; answers of the API
are left out. The server and the browser share the machine, so a busy machine lengthens every time.
"""

import gzip
import statistics
import urllib.request
from urllib.parse import urljoin

from playwright.sync_api import Browser, Page, sync_playwright

from tests.publishing.page.conftest import CHROMIUM, QUIET

from .page_rig import PATIENCE_MS, many, served

LOADS = 15
FRAMES = """async () => {  // moves the slider at every frame; measures the frames, and counts the steps that were drawn
  const [slider, when, gaps, drawn] = [document.getElementById("step"), document.getElementById("when"), [], new Set()];
  let before = performance.now();
  for (let i = 0; i < 120; i += 1) {
    slider.value = i % 2 ? i % 49 : 48 - (i % 49);
    slider.dispatchEvent(new Event("input"));
    await new Promise(requestAnimationFrame);
    const now = performance.now();
    gaps.push(now - before);
    before = now;
    drawn.add(when.textContent);
  }
  slider.dispatchEvent(new Event("change"));
  return [gaps, drawn.size];
}"""
REDRAWS = """async () => {  // shows all values in another order, ten times; the time until the next frame
  const [order, times] = [document.getElementById("order"), []];
  document.getElementById("show").value = "all";
  document.getElementById("show").dispatchEvent(new Event("change"));
  for (let i = 0; i < 10; i += 1) {
    await new Promise((done) => setTimeout(done, 200));
    const begin = performance.now();
    order.value = ["frequency", "label"][i % 2];
    order.dispatchEvent(new Event("change"));
    await new Promise(requestAnimationFrame);
    await new Promise(requestAnimationFrame);
    times.push(performance.now() - begin);
  }
  return times;
}"""


def weigh(address: str) -> int:
    """Returns the size of a body as served to a browser that accepts gzip."""
    asked = urllib.request.Request(address, headers={"Accept-Encoding": "gzip"})
    with urllib.request.urlopen(asked) as answer:
        body = answer.read()
        if answer.headers["Content-Encoding"] == "gzip":
            assert gzip.decompress(body)
        return len(body)


def opened(browser: Browser, url: str) -> Page:
    page = browser.new_context(viewport={"width": 1280, "height": 900}).new_page()
    page.goto(url)
    page.wait_for_selector("html[data-ready=yes]")
    return page


def main() -> None:
    survey, results = many(1000, 20, 49)
    with served(survey, results) as url, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=QUIET, timeout=PATIENCE_MS)
        opened(browser, url).context.close()  # a first visit fills the caches of the server
        loaded, paints, ready = set[str](), list[float](), list[float]()
        for _ in range(LOADS):
            page = browser.new_context(viewport={"width": 1280, "height": 900}).new_page()
            page.on("request", lambda request: loaded.add(request.url.partition("?")[0]))
            page.goto(url)
            page.wait_for_selector("html[data-ready=yes]")
            paints.append(page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime"))
            ready.append(page.evaluate("performance.now()"))
            page.context.close()
        files = sorted(address for address in loaded if "/api/" not in address)
        weights = {address: weigh(urljoin(url, address)) for address in files}
        print(f"page files: {sum(weights.values()):,} bytes in {len(files)} files, gzip as served")
        print(
            f"first contentful paint: median {statistics.median(paints):.0f} ms, largest {max(paints):.0f} ms of {LOADS} loads"
        )
        print(f"all drawn: median {statistics.median(ready):.0f} ms")
        page = opened(browser, url)
        gaps, drawn = page.evaluate(FRAMES)
        slow = sorted(gaps)[113]
        print(f"slider moved at every frame: median frame {statistics.median(gaps):.0f} ms, 95th percentile {slow:.0f} ms")
        print(f"{drawn} steps were drawn during {len(gaps)} movements")
        redraws = page.evaluate(REDRAWS)
        print(f"1000 bars in another order, with their table: median {statistics.median(redraws):.0f} ms")
        browser.close()


if __name__ == "__main__":
    main()
