"""Estimators of a folder of surveys, with a real Kafka and a real Redis: files come and go, and one estimator is killed."""

import json
import os
import time
from contextlib import closing
from pathlib import Path
from typing import Any

from kafka import KafkaProducer
from pydantic import SecretStr

from ldpstream.engines.checkpoint import Checkpoint
from ldpstream.engines.kafka.redis_connection import connect
from ldpstream.engines.kafka.redis_store import RedisCountStore
from ldpstream.engines.kafka.topics import ensure_topics
from ldpstream.runtime.settings import Settings
from ldpstream.services.rehearse import rehearse

from .rig import PATIENCE_S, Services, free_ports, get, wait_until

SAMPLES = Path(__file__).parents[2] / "surveys" / "samples"


class Folder:
    """A folder of surveys that begin now, with steps of two seconds. Each has one empty record, which has been counted."""

    def __init__(self, path: Path, settings: Settings) -> None:
        self.path, self._settings, self._run = path, settings, f"{os.getpid()}-{time.time_ns()}"
        path.mkdir()

    def add(self, name: str) -> str:
        """Adds a survey, and returns its name."""
        source, made = self.path.parent / f"{name}.source", self.path.parent / f"{name}.new"
        source.write_text((SAMPLES / "ms_fimu.toml").read_text().replace('name = "ms-fimu"', f'name = "{name}-{self._run}"'))
        survey = rehearse(source, made, 2, now_s=time.time())
        ensure_topics(self._settings, survey)
        with closing(KafkaProducer(bootstrap_servers=self._settings.kafka)) as producer:
            record = producer.send(survey.reports_topic, b"", partition=0).get(PATIENCE_S)
        with connect(self._settings) as client:
            store = RedisCountStore(survey, client)
            assert store.commit(0, None, Checkpoint(record.offset + 1, record.timestamp, {}, writer="agent"))
        made.rename(self.path / f"{name}.toml")
        return survey.name


def fetch(port: int, path: str) -> Any:
    status, body = get(f"http://127.0.0.1:{port}{path}")
    assert status == 200, body
    return json.loads(body) if path.startswith("/api") or "/api/" in path else body


def latest(port: int) -> dict[str, int]:
    """Returns the latest step of each survey that the estimator serves; -1 before the first."""
    found = fetch(port, "/api/v1/surveys")["surveys"]
    return {survey["name"]: -1 if survey["latest_step"] is None else survey["latest_step"] for survey in found}


def published_by(services: Services, estimator: int, name: str) -> int:
    """Returns how many publications of a survey this estimator has made, by its log."""
    lines = (services.folder / f"estimate-{estimator}.log").read_text().splitlines()
    return sum("published" in line and name in line for line in lines)


def test_estimators_follow_a_folder_and_share_its_surveys(services: Services, tmp_path: Path) -> None:
    services.env["LDPSTREAM_PARTITIONS"] = "1"
    settings = Settings(kafka=services.env["LDPSTREAM_KAFKA"], redis=SecretStr(services.env["LDPSTREAM_REDIS"]), partitions=1)
    folder = Folder(tmp_path / "surveys", settings)
    names = [folder.add(name) for name in ("one", "two")]
    ports = free_ports(4)

    def start(page: int, metrics: int) -> Any:
        ports_of = {"LDPSTREAM_PAGE_PORT": str(page), "LDPSTREAM_METRICS_PORT": str(metrics)}
        return services.start("estimate", folder.path, **ports_of)

    def goes_on(port: int, wanted: set[str]) -> None:
        """Waits until the page has exactly these surveys, and each of them has two more steps."""
        wait_until(lambda: latest(port).keys() == wanted, services.logs)
        before = latest(port)
        wait_until(lambda: all(latest(port)[name] >= before[name] + 2 for name in wanted), services.logs)

    first = start(ports[0], ports[1])
    goes_on(ports[0], set(names))

    # a third file is noticed, a broken file harms no survey
    (folder.path / "broken.toml").write_text("name = ")
    names.append(folder.add("three"))
    goes_on(ports[0], set(names))
    metrics = fetch(ports[1], "/metrics")
    assert 'ldpstream_survey_files{state="broken"} 1.0' in metrics
    assert all(
        f'ldpstream_estimate_step{{attribute="visit_duration",span="step",survey="{name}"}}' in metrics for name in names
    )
    assert fetch(ports[1], "/ready") == "ok\n"
    assert all(f'ldpstream_survey_working{{survey="{name}"}} 1.0' in metrics for name in names)
    status = fetch(ports[0], f"/surveys/{names[2]}/api/v1/status")
    assert not any(overview["complete"] for overview in status["attributes"])  # no agent has counted the steps' markers

    # a removed file ends its survey, without a trace in the metrics
    gone = names.pop(0)
    (folder.path / "one.toml").unlink()
    goes_on(ports[0], set(names))
    assert gone not in fetch(ports[1], "/metrics")

    # a second estimator serves the same surveys, and takes over after the first has died
    start(ports[2], ports[3])
    goes_on(ports[2], set(names))
    first.kill()
    first.wait()
    before = [published_by(services, 1, name) for name in names]
    goes_on(ports[2], set(names))
    wait_until(lambda: all(published_by(services, 1, n) > b for n, b in zip(names, before, strict=True)), services.logs)
    assert "Traceback" not in services.logs()
