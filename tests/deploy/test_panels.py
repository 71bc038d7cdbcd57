"""Tests that Grafana's own components draw every panel: no error, no name that does not exist, no number left out."""

import copy
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
import yaml

from ldpstream.mechanisms.arguments import IntArray
from ldpstream.producers.values import MarkovValues
from ldpstream.surveys import Survey
from tests.conftest import give_up
from tests.deploy.manifests import ROOT
from tests.deploy.panels import DASHBOARDS, Ask, Board, Canvas, Drawn, choose, open_canvas
from tests.deploy.past import STEP_S, Jumping, demo_with_cohorts, metrics, remembered
from tests.deploy.tools import PANELS, ToolError
from tests.docs.tables import METRICS

STEPS, JUMP = 16, 10
PEOPLE = 6000
PERCENTILES = "Mean and percentiles of the numbers, with intervals of 95 %"  # empty for values that are not numbers
NO_NUMBER = {"Last jump of a share"}  # empty before the first jump


class Values:
    """Simulated values. From step `JUMP` on, a third of the people have the last screen. Nobody has a latency after step 5."""

    n_people, n_steps = PEOPLE, STEPS

    def __init__(self, survey: Survey) -> None:
        self._source = Jumping(MarkovValues(survey, PEOPLE, STEPS, 1), 0, 5, 3, JUMP)

    def at(self, step: int, attribute: int) -> tuple[IntArray, IntArray]:
        """See `ValueSource.at`."""
        people, values = self._source.at(step, attribute)
        return (people, values) if attribute == 0 or step <= 5 else (people[:0], values[:0])


@dataclass
class Past:
    """A finished run of the embedded service."""

    survey: Survey
    ask: Ask
    canvas: Canvas

    def end_s(self, steps: int) -> float:
        return self.survey.start_ms / 1000 + steps * STEP_S - 1

    def draw(self, board: Board, steps: int, **chosen: str) -> dict[str, Drawn]:
        """Draws a dashboard at the end of this number of steps. Returns the panels by title."""
        start_s = self.survey.start_ms / 1000
        shot = choose(board, self.ask, start_s, self.end_s(steps), **chosen)
        return {panel.title: panel for panel in self.canvas.draw(board, self.ask, shot)}


@pytest.fixture(scope="module")
def past(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Past]:
    folder = tmp_path_factory.mktemp("past")
    survey = demo_with_cohorts(folder)
    try:
        with open_canvas() as canvas, remembered(metrics(survey, Values(survey)), folder) as ask:
            yield Past(survey, ask, canvas)
    except ToolError as error:
        give_up(str(error))


def board(name: str) -> Board:
    made: Board = json.loads((DASHBOARDS / f"{name}.json").read_text())
    return made


def recorded(panel: Board) -> bool:
    """True if the embedded service has all metrics of the panel: it has no agent, no gateway and no gauges of `Vitals`."""
    asked = set(re.findall(r"ldpstream_\w+", json.dumps(panel["targets"])))
    return asked <= METRICS["estimate"].keys() - {"ldpstream_lag_records", "ldpstream_next_estimate_due_timestamp_seconds"}


@pytest.mark.parametrize("span", ["window", "filtered"])
def test_every_panel_of_the_population_has_numbers(past: Past, span: str) -> None:
    drawn = past.draw(board("population"), STEPS, attribute="screen", value="help", span=span)
    assert {title: panel.state for title, panel in drawn.items() if panel.state != "drawn"} == {PERCENTILES: "empty"}
    assert {panel.missing for panel in drawn.values()} == {""}
    assert drawn["Complete?"].text.endswith("complete")
    assert drawn["Jumps in this time"].text.endswith("1")
    names = re.findall(r"home|search|map|chat|settings|help", drawn["Histogram"].text)
    assert names == ["home", "search", "map", "chat", "settings", "help"]


def test_bins_are_in_numeric_order_and_levels_have_names(past: Past) -> None:
    drawn = past.draw(board("population"), 5, attribute="latency_ms")
    assert {title for title, panel in drawn.items() if panel.state != "drawn"} == NO_NUMBER
    assert {panel.missing for panel in drawn.values()} == {""}
    attribute = past.survey.attributes[past.survey.index("latency_ms")]
    labels = [attribute.label(i) for i in range(attribute.k)]
    assert re.findall(r"\[\d+, \d+[\])]", drawn["Histogram"].text) == labels != sorted(labels)
    legend = re.findall(r"\[\d+, \d+[\])]", drawn["Most frequent values over time"].text)
    assert legend == [label for label in labels if label in legend]
    assert len(legend) == 10
    assert "cautious" in drawn["Estimate against mechanism"].text


def test_the_privacy_table_shows_both_chances_of_every_level(past: Past) -> None:
    panels = board("privacy")["panels"]
    drawn = past.draw(board("privacy"), STEPS)
    expected = {panel["title"]: "drawn" if recorded(panel) else "empty" for panel in panels}
    expected |= {"Agents that count": "drawn", "Crowd behind the relay": "empty"}  # this survey requires no relay
    assert {title: panel.state for title, panel in drawn.items()} == expected
    assert list(expected.values()).count("drawn") >= 6
    [last] = past.ask("query", {"query": "max(ldpstream_estimate_step)", "time": str(past.end_s(STEPS))})["result"]
    t = int(last["value"][1]) + 1
    chances = {
        (attribute.name, level.name): (1 / m.k, m.guess(t), m.claims.guess_any_values(t))
        for attribute, mechanisms in zip(past.survey.attributes, past.survey.mechanisms, strict=True)
        for level, m in zip(attribute.levels, mechanisms, strict=True)
    }
    lines = next(iter(drawn.values())).text.split("\n")
    places = [i for i, line in enumerate(lines) if line in ("screen", "latency_ms")]
    shown = {(lines[i], lines[i + 1]): [float(cell.rstrip("%")) / 100 for cell in lines[i + 2 : i + 5]] for i in places}
    assert shown == {row: pytest.approx(expected, rel=0.006) for row, expected in chances.items()}  # three digits
    assert {panel.missing for panel in drawn.values()} == {""}


def test_an_attribute_without_reports_says_so(past: Past) -> None:
    """No panel fails, and the histogram shows no percentage."""
    drawn = past.draw(board("population"), STEPS, attribute="latency_ms", span="step")
    assert drawn["Reports"].text.endswith("nobody reported")
    assert {panel.state for panel in drawn.values()} == {"drawn", "empty"}
    assert not re.search(r"\d%", drawn["Histogram"].text)


def test_a_service_without_an_estimate_says_so(past: Past) -> None:
    drawn = past.draw(board("population"), 1)
    assert drawn["Histogram"].text.endswith("no estimate yet")
    assert {title for title, panel in drawn.items() if panel.state != "empty"} == {"Jumps in this time"}  # 0 jumps


# ---- controls: the same check notices each of these faults


def no_such_label(panel: Board) -> None:
    panel["targets"][0]["legendFormat"] = "{{no_such}}"


def no_such_property(panel: Board) -> None:
    panel["fieldConfig"]["defaults"]["custom"]["noSuch"] = 1


def no_such_panel(panel: Board) -> None:
    panel["type"] = "no-such-panel"


FAULTS = {
    no_such_label: ("drawn", "label no_such"),
    no_such_property: ("drawn", "property custom.noSuch"),
    no_such_panel: ("error", ""),
}


def test_the_check_notices_faults(past: Past) -> None:
    whole = board("population")
    [good] = [panel for panel in whole["panels"] if panel["title"] == "Estimate against mechanism"]
    whole["panels"] = [copy.deepcopy(good) | {"id": i, "title": spoil.__name__} for i, spoil in enumerate(FAULTS)]
    for panel, spoil in zip(whole["panels"], FAULTS, strict=True):
        spoil(panel)
    drawn = past.draw(whole, STEPS, attribute="screen")
    assert {title: (panel.state, panel.missing) for title, panel in drawn.items()} == {
        spoil.__name__: expected for spoil, expected in FAULTS.items()
    }


def test_the_components_are_those_of_the_grafana_that_runs() -> None:
    compose = yaml.safe_load((ROOT / "deploy" / "docker" / "compose.yaml").read_text())
    [version] = re.findall(r"grafana:([\d.]+)@", compose["services"]["grafana"]["image"])
    asked = json.loads((PANELS / "package.json").read_text())["dependencies"]
    locked = json.loads((PANELS / "package-lock.json").read_text())["packages"]
    for name in ("@grafana/ui", "@grafana/data"):
        assert asked[name] == locked[f"node_modules/{name}"]["version"] == version
