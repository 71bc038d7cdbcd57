"""Monitoring of real processes: the table lists every metric, and every dashboard query has a result.

A real Prometheus scrapes the processes while they count and estimate a survey with short steps.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import urllib.parse
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from deploy.local.children import start_child
from ldpstream.engines.kafka.topics import ensure_topics
from ldpstream.gateway.relay_keys import rotate
from ldpstream.producers.kafka_sink import KafkaSink
from ldpstream.producers.population import Population
from ldpstream.producers.produce import produce_step
from ldpstream.producers.values import MarkovValues
from ldpstream.runtime.clock import now_ms
from ldpstream.runtime.settings import Settings
from ldpstream.services.rehearse import rehearse
from ldpstream.surveys import Survey
from tests.conftest import give_up
from tests.deploy.panels import Drawn, choose, open_canvas
from tests.deploy.tools import ToolError
from tests.docs.tables import METRICS, Metric

from .rig import PATIENCE_S, free_ports, get, patiently, wait_until

ROOT = Path(__file__).parents[2]
DASHBOARDS = sorted((ROOT / "deploy" / "grafana" / "dashboards").glob("*.json"))
STEP_S, RATE_INTERVAL = 2, "20s"
RELAY = 'relay = "required"\ncrowd = 1000\n'
OF_USE = ("ldpstream_people", "ldpstream_returned_ratio")  # series of a survey with recipes, whose steps are whole days
UNKNOWN = ("Last jump of a share", "People who use the application", "New people who came back")  # no jump, no recipes
COHORTS = '\n[cohort]\nname = "version"\nvalues = ["1.0", "1.1"]\nleast = 100\n'


@dataclass
class Running:
    """The running processes: their monitoring ports and the folder of their logs."""

    survey: Survey
    monitoring: dict[str, int]
    prometheus: int
    folder: Path

    def fetch(self, process: str, path: str) -> tuple[int, str]:
        return get(f"http://127.0.0.1:{self.monitoring[process]}{path}")

    def ask(self, path: str, **parameters: str) -> Any:
        """Returns the data of Prometheus's answer."""
        status, body = get(f"http://127.0.0.1:{self.prometheus}/api/v1/{path}?{urllib.parse.urlencode(parameters)}")
        assert status == 200, body
        return json.loads(body)["data"]

    def has(self, query: str) -> bool:
        return bool(self.ask("query", query=query)["result"])


def is_ready(made: Running, process: str) -> bool:
    return made.fetch(process, "/ready")[0] == 200


@pytest.fixture(scope="module")
def running(kernels: None, own_kafka: Any, own_redis: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    if shutil.which("prometheus") is None:
        give_up("no prometheus on PATH (deploy/local/setup_services.sh installs it)")
    folder = tmp_path_factory.mktemp("monitoring")
    written, file = folder / "written.toml", folder / "now.toml"
    demo = (ROOT / "surveys" / "samples" / "demo.toml").read_text().replace("lateness_steps = 1", "lateness_steps = 2")
    demo = demo.replace("values = [", 'unlisted = "help"\nvalues = [', 1)  # a value for texts that are not listed
    written.write_text(RELAY + demo + COHORTS)
    survey = rehearse(written, file, STEP_S, now_s=time.time())
    rotate(keys := folder / "relay-keys.json", datetime.now(UTC))
    agent, estimate, gateway, front, prometheus = free_ports(5)
    ports = {"agent": agent, "estimate": estimate, "gateway": gateway}
    env = {
        **os.environ, "PYTHONPATH": str(ROOT), "LDPSTREAM_KAFKA": own_kafka.bootstrap, "LDPSTREAM_REDIS": own_redis.url,
        "LDPSTREAM_PAGE_PORT": "0", "LDPSTREAM_GATEWAY_PORT": str(front),
        "LDPSTREAM_GATEWAY_RELAY_KEYS_FILE": str(keys),
    }  # fmt: skip
    started: list[subprocess.Popen[bytes]] = []

    def start(name: str, command: list[str], **settings: str) -> None:
        with (folder / f"{name}.log").open("wb") as log:
            started.append(start_child(command, env=env | settings, stdout=log, stderr=log, cwd=folder))

    for name, port in ports.items():
        start(name, [sys.executable, "-m", "ldpstream", name, str(file)], LDPSTREAM_METRICS_PORT=str(port))
    stop = threading.Event()
    reporting = threading.Thread(target=report, args=(survey, Settings(kafka=own_kafka.bootstrap), stop))
    patiently(lambda: ensure_topics(Settings(kafka=own_kafka.bootstrap), survey))
    reporting.start()
    start("prometheus", ["prometheus", *write_configuration(folder, ports, prometheus)])
    made = Running(survey, ports, prometheus, folder)
    try:
        for name in ports:
            wait_until(partial(is_ready, made, name), partial(made_log, folder, name))
        steps = 'min(ldpstream_estimate_step{span="window"}) >= 2'
        wait_until(lambda: made.has(steps), lambda: made_log(folder, "estimate"))
        yield made
    finally:
        stop.set()
        reporting.join(PATIENCE_S)
        for process in started:
            process.send_signal(signal.SIGTERM)
        for process in started:
            process.wait(PATIENCE_S)


def report(survey: Survey, settings: Settings, stop: threading.Event) -> None:
    """Simulates users who report in every step, as `ldpstream produce` does. Skips steps that a slow machine missed."""
    population = Population(survey, MarkovValues(survey, 2000, 10_000, 1), 1)
    with closing(KafkaSink(settings, survey.reports_topic)) as sink:
        done = -1
        while not stop.wait(0.05):
            if (step := survey.step_at(now_ms())) > done:
                produce_step(survey, population, sink, step)
                done = step


def made_log(folder: Path, name: str) -> str:
    return (folder / f"{name}.log").read_text()[-3000:]


def write_configuration(folder: Path, ports: dict[str, int], port: int) -> list[str]:
    """Configures Prometheus with our alerts and a scrape of every process each second. Returns Prometheus's arguments."""
    targets = [{"targets": [f"127.0.0.1:{p}" for p in ports.values()]}]
    configuration = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(ROOT / "deploy" / "prometheus" / "alerts.yaml")],
        "scrape_configs": [{"job_name": "ldpstream", "static_configs": targets}],
    }
    (folder / "prometheus.yml").write_text(json.dumps(configuration))  # JSON is YAML
    data = [f"--config.file={folder / 'prometheus.yml'}", f"--storage.tsdb.path={folder / 'prometheus'}"]
    return [*data, f"--web.listen-address=127.0.0.1:{port}"]


# ---- /metrics, /health, /ready, the log


def exported(text: str) -> dict[str, Metric]:
    """Returns our metrics in the text of `/metrics`: type and labels, by the name that a query uses."""
    made = {}
    for family in text_string_to_metric_families(text):
        if family.name.startswith("ldpstream_"):
            name = family.name + ("_total" if family.type == "counter" else "")
            labels = {label for sample in family.samples for label in sample.labels} - {"le"}
            made[name] = Metric(family.type, frozenset(labels))
    return made


def test_the_table_lists_exactly_the_exported_metrics(running: Running) -> None:
    told = {process: exported(running.fetch(process, "/metrics")[1]) for process in running.monitoring}
    without = {name: Metric("gauge", frozenset()) for name in told["estimate"] if name.startswith(OF_USE)}
    assert told == METRICS | {"estimate": METRICS["estimate"] | without}
    assert len(without) == 6


# ---- the dashboards


def queries() -> list[tuple[str, str, str]]:
    """Lists dashboard, panel and query, for every query of a panel or a variable."""
    made = []
    for path in DASHBOARDS:
        board = json.loads(path.read_text())
        for panel in board["panels"]:
            made += [(path.stem, panel["title"], target["expr"]) for target in panel["targets"]]
        made += [(path.stem, f"variable {v['name']}", v["query"]) for v in board["templating"]["list"] if v["type"] == "query"]
    return made


def filled_in(query: str, survey: Survey, estimator: str, span: str) -> str:
    values = {
        "survey": survey.name, "attribute": "screen", "span": span, "estimator": estimator, "value": "home",
        "__rate_interval": RATE_INTERVAL, "__range": RATE_INTERVAL,
    }  # fmt: skip
    return re.sub(r"\$(\w+)", lambda found: values[found[1]], query)


def test_every_query_has_a_result_on_a_fresh_service(running: Running) -> None:
    """The test waits for two scrapes, because a rate needs two samples."""
    wait_until(lambda: not unanswered(running), lambda: unanswered(running))


def unanswered(running: Running) -> list[tuple[str, str, str]]:
    """Lists dashboard, panel and query, for every query without a result."""
    empty = []
    for board, panel, query in queries():
        for estimator, span in (("eb", "window"), ("mi", "step"), ("eb", "filtered")):
            asked = filled_in(query, running.survey, estimator, span)
            asked = asked.replace('"screen"', '"latency_ms"').replace('"home"', '"0 to 10"')  # this attribute has two levels
            if listed := re.fullmatch(r"label_values\((.*), (\w+)\)", asked):
                answers = running.ask(f"label/{listed[2]}/values", **{"match[]": listed[1]})
            else:
                answers = running.ask("query", query=asked)["result"]
            # a query that ends so has a result only after a rejection
            if not answers and not asked.endswith("> 0") and not any(name in asked for name in OF_USE):
                empty.append((board, panel, asked))
    return empty


def test_every_panel_is_drawn(running: Running) -> None:
    """Draws both dashboards with Grafana's own components until each panel has a number. A slow machine misses scrapes and
    steps; a step that it missed has no shares."""

    def ask(path: str, parameters: dict[str, str]) -> Any:
        return running.ask(path, **parameters)

    def draw(path: Path, **chosen: str) -> list[Drawn]:
        board, end_s = json.loads(path.read_text()), time.time()
        return canvas.draw(board, ask, choose(board, ask, end_s - 60, end_s, **chosen))

    def undrawn(path: Path) -> list[Drawn]:
        return [panel for panel in draw(path) if (panel.state, panel.missing) != ("drawn", "") and panel.title not in UNKNOWN]

    def all_drawn(path: Path) -> bool:
        return not undrawn(path)

    def bins() -> list[str]:
        text = next(panel.text for panel in draw(population, attribute="latency_ms") if panel.title == "Histogram")
        return re.findall(r"\d+ to \d+", text)

    try:
        with open_canvas() as canvas:
            for path in DASHBOARDS:
                wait_until(partial(all_drawn, path), partial(undrawn, path))
            (population,) = (path for path in DASHBOARDS if path.stem == "population")
            attribute = running.survey.attributes[running.survey.index("latency_ms")]
            labels = [attribute.label(i) for i in range(attribute.k)]  # in numeric order, not in that of their names
            assert labels != sorted(labels)
            wait_until(lambda: bins() == labels, bins)
    except ToolError as error:
        give_up(str(error))


def test_no_alert_pages_while_the_service_is_healthy(running: Running) -> None:
    rules = running.ask("rules")["groups"][0]["rules"]
    assert all(rule["health"] == "ok" for rule in rules)

    def pages() -> set[str]:
        return {a["labels"]["alertname"] for a in running.ask("alerts")["alerts"] if a["labels"]["severity"] == "page"}

    wait_until(lambda: not pages(), pages)  # no alert is even pending
