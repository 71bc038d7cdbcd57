"""The main job over a real Kafka and a real Redis, each command a process of its own: from people's values to histograms."""

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import redis
from kafka import KafkaConsumer

from agents.redis_store import RedisCountStore
from agents.tally import PaneKey, tally
from estimators.publication import Publication
from estimators.results import RedisResults
from ldpstream.demo import Demo
from ldpstream.embedded import MemoryLog
from ldpstream.rehearse import rehearse
from mechanisms import CountTable
from producers.population import Population
from producers.produce import produce_step
from producers.sinks import MemorySink
from producers.values import load_values
from surveys import Survey, load_survey
from surveys.settings import Settings

from .rig import free_ports

ROOT = Path(__file__).parents[2]
DATA = Path(os.environ.get("LDPSTREAM_DATA", ROOT.parent / "shared" / "data")) / "ms_fimu_visits.csv"
MS_FIMU = ROOT / "surveys" / "samples" / "ms_fimu.toml"
REPORTS, STEPS = 190_345, 7  # of the MS-FIMU visits
STEP_S, SEED = 3, 5


class Services:
    """Commands of ldpstream as processes."""

    def __init__(self, kafka: str, redis_url: str, folder: Path) -> None:
        self.metrics_port = free_ports(1)[0]
        self.folder = folder
        self.env = {
            **os.environ, "PYTHONPATH": str(ROOT), "LDPSTREAM_KAFKA": kafka, "LDPSTREAM_REDIS": redis_url,
            "LDPSTREAM_PARTITIONS": "4", "LDPSTREAM_COMMIT_INTERVAL_MS": "200",
        }  # fmt: skip
        self.running: list[subprocess.Popen[bytes]] = []

    def start(self, *arguments: object, **settings: str) -> subprocess.Popen[bytes]:
        log = (self.folder / f"{arguments[0]}-{len(self.running)}.log").open("wb")
        with log:
            process = subprocess.Popen(
                [sys.executable, "-m", "ldpstream", *map(str, arguments)], env=self.env | settings, stdout=log, stderr=log
            )
        self.running.append(process)
        return process

    def finish(self, process: subprocess.Popen[bytes], timeout_s: float) -> None:
        """Wait for an end without complaint."""
        try:
            status = process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            status = None
        assert status == 0, (status, self.logs())

    def logs(self) -> str:
        return "\n".join(f"{path.name}: {path.read_text()[-2000:]}" for path in sorted(self.folder.glob("*.log")))

    def stop(self) -> None:
        for process in self.running:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        for process in self.running:
            process.wait(20)


@pytest.fixture
def services(kafka: str, redis_url: str, tmp_path: Path) -> Iterator[Services]:
    made = Services(kafka, redis_url, tmp_path)
    yield made
    made.stop()


def visits(folder: Path) -> tuple[Path, int]:
    """The MS-FIMU visits where they can be had, else as many simulated ones; and their number."""
    if DATA.exists():
        return DATA, REPORTS
    path, rng = folder / "visits.csv", np.random.default_rng(1)
    labels = load_survey(MS_FIMU).attributes[0].labels
    lines = [
        f"p{person},{day},{labels[rng.integers(len(labels))]}\n"
        for person in range(60_000)
        for day in range(1, 8)
        if rng.random() < 0.3
    ]
    path.write_text("person,day,visit\n" + "".join(lines))
    return path, len(lines)


def embedded(survey: Survey, data: Path) -> tuple[dict[str, Publication], dict[str, list[float] | None]]:
    """The same survey, values and seed through the embedded log: publications and truths by key."""
    demo = Demo(survey, load_values(data, survey, 1), SEED)
    demo.run(lambda step, made: None)
    results, truth = demo.service.results, demo.truth
    history = results.history()
    return {p.key: p for p in history}, {p.key: truth.of(survey, p) for p in history}


def direct_tally(survey: Survey, data: Path) -> dict[PaneKey, CountTable]:
    """Count tables of what was produced, without any service."""
    log = MemoryLog(1, survey.opens_ms(0))
    population = Population(survey, load_values(data, survey, 1), SEED)
    for step in range(STEPS):
        log.now_ms = survey.opens_ms(step)
        produce_step(survey, population, MemorySink(log.append), step)
    return tally(survey, log.partitions[0]).counts


def wait_until(condition: Any, timeout_s: float, why: Any) -> None:
    end = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end, why()
        time.sleep(0.1)


def test_visits_from_values_to_histograms(services: Services, kafka: str, redis_url: str, tmp_path: Path) -> None:
    data, n_reports = visits(tmp_path)
    survey_file, out = tmp_path / "visits.toml", tmp_path / "estimates.json"
    text = MS_FIMU.read_text().replace('name = "ms-fimu"', f'name = "visits-{os.getpid()}-{time.time_ns()}"')
    (tmp_path / "source.toml").write_text(text)
    survey = rehearse(tmp_path / "source.toml", survey_file, STEP_S, starts_in=20, now_s=time.time())
    agents = [services.start("agent", survey_file) for _ in range(2)]
    sent = tmp_path / "sent.json"
    produce = services.start("produce", survey_file, "--data", data, "--first-step", 1, "--seed", SEED, "--json", sent)
    services.finish(produce, 60)

    # every acknowledged report is counted, once: the tables equal a tally without any service
    produced = json.loads(sent.read_text())["produced"]
    assert sum(row["reports"] for row in produced) == n_reports
    store = RedisCountStore(survey, Settings(redis=redis_url))

    def counted() -> int:
        return sum(table.n for table in store.tables(range(STEPS)).values())

    wait_until(lambda: counted() == n_reports, 30, lambda: (counted(), services.logs()))
    tables = store.tables(range(STEPS))
    assert tables == direct_tally(survey, data)
    assert sum(table.n for table in tables.values()) == n_reports
    assert not any(store.rejected().values())
    store.close()

    # an agent that is told to stop does so, having written everything; the estimator does without agents
    for agent in agents:
        agent.send_signal(signal.SIGTERM)
        services.finish(agent, 15)
    estimate = services.start("estimate", survey_file, LDPSTREAM_METRICS_PORT=str(services.metrics_port))
    wait_until(lambda: scrape(services.metrics_port, STEPS - 1), 60, services.logs)
    estimate.send_signal(signal.SIGTERM)
    services.finish(estimate, 15)
    # started again, it finds everything published
    services.finish(services.start("estimate", survey_file, "--until", STEPS - 1, "--json", out), 60)

    # the histograms equal those of the embedded log, bit for bit
    published = {f"{e['attribute']}|{e['span']}|{e['step']}": e for e in json.loads(out.read_text())["estimates"]}
    reference, truth = embedded(survey, data)
    wanted = {f"visit_duration|{span}|{step}" for span in ("step", "window") for step in range(STEPS)}
    assert wanted <= set(published)
    for key in wanted:
        mine, other = published[key], reference[key]
        assert mine["complete"]
        assert mine["reports"] == other.reports
        assert mine["panes"] == other.panes
        for name, result in other.estimators.items():
            assert mine["estimators"][name]["frequencies"] == result.frequencies
            assert mine["estimators"][name]["standard_errors"] == result.standard_errors
        assert mine["privacy"]["standard"]["eps_t"] == other.privacy["standard"].eps_t
    assert sum(published[f"visit_duration|step|{step}"]["reports"] for step in range(STEPS)) == n_reports

    # and the truth lies within the intervals about as often as it should: 70 intervals of 95 %, of which 16 or more miss
    # with probability below 1e-6 even if all were independent; 50 % intervals must miss far more often
    misses = {0.6745: 0, 1.96: 0}
    for key in (k for k in wanted if "|step|" in k):
        mi = published[key]["estimators"]["mi"]
        z = np.abs(np.array(mi["frequencies"]) - np.array(truth[key])) / np.array(mi["standard_errors"])
        for width in misses:
            misses[width] += int((z > width).sum())
    assert misses[1.96] <= 15
    assert misses[0.6745] >= 16  # the control: narrower intervals are found out

    # the same in the compacted topic and in Redis
    client = redis.Redis.from_url(redis_url)
    assert {p.key for p in RedisResults(survey, client).history()} >= wanted
    client.close()
    consumer = KafkaConsumer(
        survey.estimates_topic, bootstrap_servers=kafka, auto_offset_reset="earliest", consumer_timeout_ms=3000, group_id=None
    )
    told = {record.key.decode(): json.loads(record.value) for record in consumer}
    consumer.close()
    assert wanted <= set(told)
    assert all(told[key]["estimators"] == published[key]["estimators"] for key in wanted)


def scrape(port: int, step: int) -> bool:
    """Whether /metrics shows that step's histogram or a later one's, and the privacy loss."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=2) as answer:
            text = answer.read().decode()
    except OSError:
        return False
    shown = re.search(r'ldpstream_estimate_step\{attribute="visit_duration",span="window",.*\} (\d+)\.0', text)
    wanted = (  # a later step has no reports
        r'ldpstream_frequency_ratio\{attribute="visit_duration",estimator="mi",span="step",.*value="Duration 3h"\} [\d.Na]+',
        r'ldpstream_privacy_eps_t_nats\{attribute="visit_duration",level="standard",.*\} (1\.9\d+|2\.0)',
    )
    return shown is not None and int(shown[1]) >= step and all(re.search(pattern, text) for pattern in wanted)
