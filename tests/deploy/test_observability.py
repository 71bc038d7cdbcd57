"""Tests of alerts and dashboards: promtool's tests pass, generated files are up to date, metrics exist."""

import importlib.util
import json
import re
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy.conftest import wanted
from tests.deploy.manifests import KUBERNETES, ROOT
from tests.deploy.panels import NUMERICAL
from tests.deploy.tools import PANELS, ToolError
from tests.docs.tables import METRICS

PROMETHEUS = ROOT / "deploy" / "prometheus"
GRAFANA = ROOT / "deploy" / "grafana"


@cache
def module(path: Path) -> Any:
    """Imports a script of deploy/ as a module."""
    spec = importlib.util.spec_from_file_location(f"deploy_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(path.parent))  # as for a script: it may import modules of its folder
    try:
        spec.loader.exec_module(made)
    finally:
        sys.path.remove(str(path.parent))
    return made


def promtool(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    def find() -> str:
        if (found := shutil.which("promtool")) is None:
            raise ToolError("no promtool on PATH (deploy/local/setup_services.sh installs it)")
        return found

    return subprocess.run([wanted(find), *arguments], capture_output=True, text=True, check=False)


def test_promtool_accepts_the_alerts_and_their_tests() -> None:
    assert promtool("check", "rules", PROMETHEUS / "alerts.yaml", PROMETHEUS / "changes.yaml").returncode == 0
    assert promtool("check", "config", PROMETHEUS / "serve.yml").returncode == 0
    tested = promtool("test", "rules", PROMETHEUS / "alerts_test.yaml")
    assert tested.returncode == 0, tested.stderr


def test_every_alert_has_a_firing_and_a_quiet_test() -> None:
    alerts = {rule["alert"] for rule in rules()}
    tests = yaml.safe_load((PROMETHEUS / "alerts_test.yaml").read_text())["tests"]
    cases = [(case["alertname"], bool(case["exp_alerts"])) for test in tests for case in test["alert_rule_test"]]
    assert set(cases) == {(alert, fires) for alert in alerts for fires in (True, False)}


def test_every_alert_names_its_section_of_the_runbook() -> None:
    headings = re.findall(r"(?m)^## (Ldpstream\w+)$", (ROOT / "docs" / "reference" / "alerts.md").read_text())
    assert sorted(headings) == sorted(rule["alert"] for rule in rules())
    for rule in rules():
        assert rule["annotations"]["runbook_url"] == f"docs/reference/alerts.md#{rule['alert'].lower()}"


def rules() -> list[dict[str, Any]]:
    made: list[dict[str, Any]] = yaml.safe_load((PROMETHEUS / "alerts.yaml").read_text())["groups"][0]["rules"]
    return made


@pytest.mark.parametrize("broken", ["vector(1) > 2", "vector(1)"], ids=["never", "always"])
def test_the_alert_tests_detect_broken_rules(broken: str, tmp_path: Path) -> None:
    text = re.sub(r"(?m)^( +expr:) .*$", rf"\1 {broken}", (PROMETHEUS / "alerts.yaml").read_text())
    (tmp_path / "alerts.yaml").write_text(text)
    shutil.copy(PROMETHEUS / "alerts_test.yaml", tmp_path)
    said = promtool("test", "rules", tmp_path / "alerts_test.yaml").stderr
    assert set(re.findall(r"alertname: (\w+)", said)) == {rule["alert"] for rule in rules()}


def test_the_rule_of_kubernetes_has_the_same_alerts() -> None:
    assert module(KUBERNETES / "alerts.py").rule() == (KUBERNETES / "base" / "alerts.yaml").read_text()
    assert yaml.safe_load((KUBERNETES / "base" / "alerts.yaml").read_text())["spec"]["groups"][0]["rules"] == rules()


@pytest.mark.filterwarnings("ignore:Prefer using dashboardv2")  # Grafana's provisioning reads files in the classic model
def test_the_dashboard_files_are_up_to_date() -> None:
    made = module(GRAFANA / "dashboards.py").dashboards()
    assert made == {path.name: path.read_text() for path in (GRAFANA / "dashboards").glob("*.json")}


def test_dashboards_are_consistent() -> None:
    for path in (GRAFANA / "dashboards").glob("*.json"):
        board = json.loads(path.read_text())
        ids = [panel["id"] for panel in board["panels"]]
        assert len(set(ids)) == len(ids)
        places = [panel["gridPos"] for panel in board["panels"]]
        for i, a in enumerate(places):
            assert a["x"] + a["w"] <= 24
            for b in places[:i]:
                assert (
                    a["x"] >= b["x"] + b["w"]
                    or b["x"] >= a["x"] + a["w"]
                    or a["y"] >= b["y"] + b["h"]
                    or b["y"] >= a["y"] + a["h"]
                )
        known = {variable["name"] for variable in board["templating"]["list"]} | {"__rate_interval", "__range"}
        for panel in board["panels"]:
            for target in panel["targets"]:
                assert set(re.findall(r"\$(\w+)", target["expr"])) <= known
                assert target["legendFormat"]
                assert target["refId"]


def panels() -> list[dict[str, Any]]:
    boards = [json.loads(path.read_text()) for path in (GRAFANA / "dashboards").glob("*.json")]
    return [panel for board in boards for panel in board["panels"]]


def defaults(panel: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = panel["fieldConfig"]["defaults"]
    return found


def test_columns_of_tables_have_the_names_of_their_queries() -> None:
    tables = [panel for panel in panels() if panel["type"] == "table"]
    assert len(tables) == 3
    for panel in tables:
        named = panel["transformations"][-1]["options"]["renameByName"]
        assert {f"Value #{target['refId']}": target["legendFormat"] for target in panel["targets"]}.items() <= named.items()


def test_variables_are_sorted_by_number() -> None:
    """By name, Grafana's menu would list "100 to 150" before "20 to 30"."""
    boards = [json.loads(path.read_text()) for path in (GRAFANA / "dashboards").glob("*.json")]
    assert {v["sort"] for board in boards for v in board["templating"]["list"] if v["type"] == "query"} == {NUMERICAL}


def limits(panel: dict[str, Any]) -> set[float]:
    """Returns the limits of a panel's thresholds, also of single columns and numbers."""
    made = [defaults(panel)["thresholds"]]
    made += [p["value"] for o in panel["fieldConfig"]["overrides"] for p in o["properties"] if p["id"] == "thresholds"]
    assert all(found["steps"][0]["value"] is None for found in made)
    return {step["value"] for found in made for step in found["steps"][1:]}


def test_thresholds_are_those_of_the_alerts() -> None:
    """Every panel has thresholds, because Grafana's default thresholds colour every value above 80 red."""
    assert {p["title"]: found for p in panels() if (found := limits(p))} == {
        "Jumps in this time": {1},
        "Significance of differences (p-value)": {5.7e-7},
        "Estimate against mechanism": {-6, 6},
        "Records waiting": {10_000},
        "Envelopes rejected": {0.05},
        "Agents that count": {1},
        "Estimate overdue": {120},
        "Recoveries in the time shown": {1},
    }
    for panel in panels():
        if panel["type"] == "timeseries":
            shown = defaults(panel)["custom"].get("thresholdsStyle", {}).get("mode") == "dashed"
            assert shown is bool(limits(panel))


def test_alerts_and_dashboards_query_existing_metrics() -> None:
    exported = {name for process in METRICS.values() for name in process}
    exported |= {
        f"{name}_{part}"
        for process in METRICS.values()
        for name, m in process.items()
        if m.kind == "histogram"
        for part in ("bucket", "sum", "count")
    }
    boards = "".join(path.read_text() for path in (GRAFANA / "dashboards").glob("*.json"))
    asked = set(re.findall(r"\bldpstream_\w+", boards + "".join(rule["expr"] for rule in rules())))
    assert asked
    assert asked <= exported


def test_the_components_that_draw_the_panels_are_those_of_the_grafana_that_runs() -> None:
    compose = yaml.safe_load((ROOT / "deploy" / "docker" / "compose.yaml").read_text())
    [version] = re.findall(r"grafana:([\d.]+)@", compose["services"]["grafana"]["image"])
    asked = json.loads((PANELS / "package.json").read_text())["dependencies"]
    locked = json.loads((PANELS / "package-lock.json").read_text())["packages"]
    for name in ("@grafana/ui", "@grafana/data"):
        assert asked[name] == locked[f"node_modules/{name}"]["version"] == version
