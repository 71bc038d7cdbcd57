"""The thresholds of `publishing.estimates.thresholds` in the alerts, the dashboards, the documents and the page."""

import re
from pathlib import Path

import pytest

from ldpstream.publishing.estimates.thresholds import (
    ALARM_CHANCE,
    CLIENT_LIMIT,
    FIT_LIMIT,
    LAG_LIMIT,
    LOAD_LIMIT,
    OVERDUE_MS,
)

CHANCE = f"{ALARM_CHANCE:g}".replace("e-0", "e-")
ROOT = Path(__file__).parents[2]
ALERTS = (ROOT / "deploy" / "prometheus" / "alerts.yaml").read_text()
DOCS = {path.name: " ".join(path.read_text().split()) for path in (ROOT / "docs").rglob("*.md")}
CODE = [
    path
    for room in ("publishing", "ldpstream", "estimators", "deploy")
    for path in (ROOT / room).rglob("*")
    if path.suffix in (".py", ".js") and path.name != "thresholds.py" and "uPlot" not in path.name
]


@pytest.mark.parametrize(("metric", "limits"), [
    ("ldpstream_fit_z", [f"> {FIT_LIMIT:g} ", f"< -{FIT_LIMIT:g}"]),
    ("ldpstream_drift_p", [f"< {CHANCE}"]),
    ("ldpstream_levels_p", [f"< {CHANCE}"]),
    ("ldpstream_lag_records", [f"> {LAG_LIMIT}"]),
    ("ldpstream_gateway_largest_client_ratio", [f"> {CLIENT_LIMIT:g}"]),
    ("ldpstream_next_estimate_due_timestamp_seconds", [f"> {OVERDUE_MS // 1000}"]),
])  # fmt: skip
def test_the_alerts_have_the_thresholds(metric: str, limits: list[str]) -> None:
    found = re.findall(rf"expr: (.*\({metric}\)+ [<>].*)", ALERTS)
    assert found
    found = [expression for expression in found if "< Inf" not in expression]  # LdpstreamNoReports has no such limit
    assert all(f" {limit}" in f"{expression} " for expression in found for limit in limits)


def test_the_documents_have_the_thresholds() -> None:
    for name, said in (("api.md", "`levels_p` below"), ("operate.md", "dashed line at"), ("alerts.md", "this much is below")):
        assert f"{said} {CHANCE}" in DOCS[name]
    assert f"within ±{FIT_LIMIT:g};" in DOCS["operate.md"]
    assert f"More than {LAG_LIMIT:_} records wait".replace("_", " ") in DOCS["alerts.md"]
    assert f"(ldpstream_estimate_load_ratio) > {LOAD_LIMIT}\n" in ALERTS
    assert OVERDUE_MS == 120_000
    assert all("more than two minutes" in DOCS[name] for name in ("alerts.md", "reading.md"))


def test_no_other_module_repeats_a_threshold() -> None:
    repeated = re.compile(rf"{CHANCE}|\b{OVERDUE_MS}\b|\b{OVERDUE_MS:_}\b|[^\w.](?:FIT_LIMIT|fit_limit) *[:=] *\d")
    assert repeated.search("p < 5.7e-7")
    assert repeated.search("due_ms + 120_000")
    assert len(CODE) > 50
    assert not [path for path in CODE if repeated.search(path.read_text(encoding="utf-8"))]
