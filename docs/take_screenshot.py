"""Takes the pictures of the demo's page for the README and the documents:  python -m docs.take_screenshot

Needs the extras `service`, `dev` and `plot` of this project, and Debian's Chromium.
"""

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Literal

import numpy as np
from playwright.sync_api import sync_playwright

from deploy.local.children import start_child
from lab.pictures import shrink

PICTURES = Path(__file__).parent / "pictures"
SURVEY = Path(__file__).parents[1] / "surveys" / "samples" / "demo.toml"
USAGE = SURVEY.with_name("usage.toml")
DEMO = [sys.executable, "-m", "ldpstream", "demo", "--page"]
WIDTH, HEIGHT = 1200, 720
Scheme = Literal["light", "dark"]
PATIENCE_MS = 120_000  # a busy machine starts Chromium slowly
COHORT = '[cohort]\nname = "version"\nvalues = ["1.0", "1.1", "beta"]\nleast = 1000\n'
SCREENS = ("home", "search", "map", "chat", "settings", "help")
SHARES = {"1.0": (45, 25, 15, 5, 6, 4), "1.1": (35, 20, 10, 25, 6, 4), "beta": (30, 20, 10, 25, 10, 5)}
SIZES = {"1.0": 14_000, "1.1": 6_000, "beta": 100}


def cohorts(folder: Path) -> list[str]:
    survey, people = folder / "survey.toml", folder / "people.csv"
    survey.write_text(
        SURVEY.read_text(encoding="utf-8").replace("[[attribute]]", f"{COHORT}[[attribute]]", 1), encoding="utf-8"
    )
    rng, lines = np.random.default_rng(1), ["version,screen,latency_ms"]
    for version, n in SIZES.items():
        screens = rng.choice(SCREENS, n, p=np.array(SHARES[version]) / 100)
        lines += [f"{version},{screen},{ms:.0f}" for screen, ms in zip(screens, rng.lognormal(4.5, 1, n), strict=True)]
    people.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return ["--survey", str(survey), "--data", str(people)]


def use(folder: Path) -> list[str]:
    """A survey with three of the sample's six questions, so that few people are enough."""
    head, *questions = USAGE.read_text(encoding="utf-8").split("[[attribute]]")
    survey = folder / "usage.toml"
    survey.write_text("[[attribute]]".join([head, *questions[:3]]), encoding="utf-8")
    return ["--survey", str(survey), "--users", "300000", "--steps", "26"]


def take(picture: Path, options: list[str], query: str, card: str | None = None, scheme: Scheme = "light") -> None:
    """Serves the demo's page, and takes a picture of what a reader sees first, or of one card of the page."""
    environment = {**os.environ, "LDPSTREAM_PAGE_PORT": "0"}
    with start_child([*DEMO, *options], stdout=subprocess.PIPE, text=True, env=environment) as demo:
        assert demo.stdout
        try:
            address = next(found[0] for line in demo.stdout if (found := re.findall(r"http://\S+/", line)))
            next(line for line in demo.stdout if "until Ctrl-C" in line)  # all steps are estimated
            with sync_playwright() as play:
                browser = play.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"], timeout=PATIENCE_MS)
                page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT}, color_scheme=scheme)
                page.set_default_timeout(PATIENCE_MS)
                page.goto(address + query)
                page.wait_for_selector("html[data-ready=yes]")
                if card is None:
                    page.screenshot(path=picture)
                else:
                    page.locator(card).screenshot(path=picture)
                browser.close()
        finally:
            demo.terminate()
    shrink(picture)


def main() -> None:
    """Takes all pictures."""
    take(PICTURES / "page.png", ["--survey", str(SURVEY)], "")
    take(PICTURES / "page-dark.png", ["--survey", str(SURVEY)], "", scheme="dark")
    take(PICTURES / "attribute.png", [], "?attribute=mode")
    take(PICTURES / "percentiles.png", ["--survey", str(SURVEY)], "?attribute=latency_ms", "#quantiles-card")
    with tempfile.TemporaryDirectory() as folder:
        take(PICTURES / "cohort.png", cohorts(Path(folder)), "?cohort=1.1&against=1.0")
        take(PICTURES / "usage.png", use(Path(folder)), "")


if __name__ == "__main__":
    main()
