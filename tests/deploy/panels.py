"""Draws dashboards in a browser with Grafana's own panel components, from the answers of a Prometheus.

    python -m tests.deploy.panels PROMETHEUS FOLDER [--minutes 60] [NAME=VALUE]…

draws both dashboards, of the last hour, as pictures in FOLDER; NAME=VALUE sets a variable of the dashboards. The components are
those of the package @grafana/ui, of the version that `deploy/docker/compose.yaml` runs (`tests/deploy/grafana/app.jsx`).
"""

import json
import re
import sys
import time
import urllib.parse
import urllib.request
from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, sync_playwright

from lab.pictures import shrink
from tests.deploy.tools import ToolError, panel_bundle
from tests.publishing.page.conftest import CHROMIUM, QUIET
from tests.publishing.page.page_rig import PATIENCE_MS

DASHBOARDS = Path(__file__).parents[2] / "deploy" / "grafana" / "dashboards"
SCRAPE_S = 10  # `timeInterval` of deploy/grafana/provisioning/datasources
POINTS = 360  # points of a curve; Grafana asks for about one point per pixel
WIDTH = 1200  # as in `app.jsx`; narrow enough to read a picture in a document
ORIGIN = "http://grafana.invalid/"  # Grafana's components need an origin with a local storage
EMPTY = '<!doctype html><meta charset="utf-8"><body style="margin:0"><div id="root"></div>'
VARIABLES = ("survey", "attribute", "span", "estimator", "value")
NUMERICAL = 3  # code of the numerical sort of a variable's values

Ask = Callable[[str, dict[str, str]], Any]  # a path below /api/v1/ and its parameters -> Prometheus's data
Board = dict[str, Any]


@dataclass(frozen=True)
class Drawn:
    """One panel as drawn.

    Attributes:
        state: "drawn" if the panel has a number, "empty" if it has none, "error" if its component failed.
        missing: labels, fields, properties and transformations that the dashboard names but that do not exist.
        text: the text of the panel, without the canvas of a graph.
    """

    title: str
    state: str
    missing: str
    text: str


@dataclass(frozen=True)
class Shot:
    """A time range of a dashboard, in seconds since 1970, and the values of its variables."""

    start_s: float
    end_s: float
    values: Mapping[str, str]

    @property
    def step_s(self) -> int:
        return max(SCRAPE_S, int((self.end_s - self.start_s) / POINTS))

    def fill(self, text: str) -> str:
        """Replaces the dashboard's variables, and Grafana's own variables of time."""
        rate_s = max(self.step_s + SCRAPE_S, 4 * SCRAPE_S)
        own = {"__rate_interval": f"{rate_s}s", "__range": f"{int(self.end_s - self.start_s)}s"}
        return re.sub(r"\$(\w+)", lambda found: (own | dict(self.values))[found[1]], text)


def choose(board: Board, ask: Ask, start_s: float, end_s: float, **chosen: str) -> Shot:
    """Sets every variable of the dashboard as Grafana does: to the chosen value, else to its current value."""
    shot = Shot(start_s, end_s, {})
    for variable in board["templating"]["list"]:
        name = variable["name"]
        if variable["type"] != "query":
            first = variable["current"]["value"]
        else:
            found = re.fullmatch(r"label_values\((.*), (\w+)\)", shot.fill(variable["query"]))
            assert found is not None, variable["query"]
            listed = ask(f"label/{found[2]}/values", {"match[]": found[1], "start": str(start_s), "end": str(end_s)})
            first = min(listed, key=_first_number, default="")  # Grafana's numerical sort
            assert variable["sort"] == NUMERICAL, name
        shot = Shot(start_s, end_s, {**shot.values, name: chosen.get(name, first)})
    return shot


def _first_number(text: str) -> int:
    found = re.search(r"\d+", text)
    return int(found[0]) if found else -1


def answers(panel: Board, ask: Ask, shot: Shot) -> list[Any]:
    """Sends a panel's queries."""
    made = []
    for target in panel["targets"]:
        query = {"query": shot.fill(target["expr"])}
        if target.get("instant"):
            made.append(ask("query", query | {"time": str(shot.end_s)}))
        else:
            span = {"start": str(shot.start_s), "end": str(shot.end_s), "step": str(shot.step_s)}
            made.append(ask("query_range", query | span))
    return made


class Canvas:
    """A page of Chromium with Grafana's components. Each drawing replaces the previous one.

    Raises:
        ToolError: if Grafana's components cannot be fetched.
    """

    def __init__(self, browser: Browser) -> None:
        bundle = panel_bundle()
        self._page = browser.new_page(viewport={"width": WIDTH, "height": 1200})
        self._said: list[str] = []
        self._page.on("pageerror", lambda error: self._said.append(str(error)))
        self._page.on("console", lambda message: self._said.append(message.text) if message.type == "error" else None)
        self._page.route("**/*", lambda route: route.fulfill(body=EMPTY, content_type="text/html"))
        self._page.goto(ORIGIN)
        self._page.add_style_tag(path=bundle / "app.css")
        self._page.add_script_tag(path=bundle / "app.js")
        assert not self._said, self._said

    def draw(self, board: Board, ask: Ask, shot: Shot) -> list[Drawn]:
        """Draws a dashboard. An error on the page's console that no panel shows is an AssertionError."""
        self._said.clear()
        shown = board | {"panels": [panel | {"title": shot.fill(panel["title"])} for panel in board["panels"]]}
        data = [answers(panel, ask, shot) for panel in board["panels"]]
        given = {"board": shown, "answers": data, "from": shot.start_s * 1000, "to": shot.end_s * 1000}
        self._page.evaluate("given => window.draw(given)", given)
        made = []
        for panel in shown["panels"]:
            element = self._page.locator(f"#panel-{panel['id']}")
            state, missing = element.get_attribute("data-state"), element.get_attribute("data-missing")
            made.append(Drawn(panel["title"], state or "", missing or "", element.inner_text()))
        assert not self._said or any(panel.state == "error" for panel in made), self._said
        return made

    def picture(self, file: Path) -> None:
        """Writes the drawing as a PNG with a palette, which has a third of the bytes."""
        self._page.locator("#board").screenshot(path=file)
        shrink(file)


@contextmanager
def open_canvas() -> Iterator[Canvas]:
    """Yields a page of Chromium with Grafana's components.

    Raises:
        ToolError: if Chromium is missing, or Grafana's components cannot be fetched.
    """
    if CHROMIUM is None:
        raise ToolError("no Chromium on PATH (deploy/local/setup_services.sh installs it)")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=QUIET, timeout=PATIENCE_MS)
        try:
            yield Canvas(browser)
        finally:
            browser.close()


def asker(url: str) -> Ask:
    """Returns a function that asks a Prometheus."""

    def ask(path: str, parameters: dict[str, str]) -> Any:
        body = urllib.parse.urlencode(parameters).encode()
        with urllib.request.urlopen(f"{url}/api/v1/{path}?{body.decode()}", timeout=60) as answer:
            return json.load(answer)["data"]

    return ask


def _variable(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if name not in VARIABLES or not equals:
        raise ArgumentTypeError(f"must be NAME=VALUE, NAME one of {', '.join(VARIABLES)}, got {text!r}")
    return name, value


def main() -> int:
    """Draws both dashboards. On an error, prints the error to standard error and exits with status 1."""
    parser = ArgumentParser(prog="python -m tests.deploy.panels", description="Draws both dashboards.")
    parser.add_argument("prometheus", help="address, for example http://127.0.0.1:9090")
    parser.add_argument("folder", type=Path)
    parser.add_argument("values", nargs="*", type=_variable, metavar="NAME=VALUE", help="a variable of the dashboards")
    parser.add_argument("--minutes", type=float, default=60)
    given = parser.parse_intermixed_args()
    ask, end_s = asker(given.prometheus), time.time()
    given.folder.mkdir(parents=True, exist_ok=True)
    try:
        with open_canvas() as canvas:
            for file in sorted(DASHBOARDS.glob("*.json")):
                board = json.loads(file.read_text())
                shot = choose(board, ask, end_s - 60 * given.minutes, end_s, **dict(given.values))
                for panel in canvas.draw(board, ask, shot):
                    print(f"{file.stem}: {panel.title}: {panel.state} {panel.missing}")
                canvas.picture(given.folder / f"{file.stem}.png")
    except (ToolError, OSError) as error:
        print(f"panels: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
