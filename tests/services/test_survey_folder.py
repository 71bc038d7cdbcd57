"""Agents and a gateway of a folder of surveys, as real processes with real Kafka and Redis, while the folder changes."""

import json
import os
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest
from kafka import KafkaAdminClient

from ldpstream.engines.kafka.redis_connection import connect
from ldpstream.engines.kafka.redis_store import RedisCountStore
from ldpstream.runtime.clock import now_ms
from ldpstream.runtime.settings import Settings
from ldpstream.surveys import load_survey
from ldpstream.surveys.envelope import decode_envelope
from tests.agents.samples import sound

from .agent_site import SURVEY, Site
from .rig import ENDED_S, PATIENCE_S, free_ports, get, start_command, wait_until

MakeFolderSite = Callable[[str], "FolderSite"]


class FolderSite(Site):
    """One survey of a folder."""

    @property
    def file(self) -> Path:
        return self.folder / "surveys" / f"{self.survey.name}.toml"

    @property
    def group(self) -> str:
        return self.settings.group

    def exchange(self, rng: np.random.Generator, n: int) -> None:
        """Sends envelopes, and waits until they are counted."""
        with self.producer() as producer:
            self.send(producer, rng, n)
        self.until(lambda: self.counted() == self.n_sent)

    def told(self, event: str) -> bool:
        """True if every agent has logged this event of this survey."""
        wanted = (f'"event": "{event}"', f'"survey": "{self.survey.name}"')
        logs = [worker.log.read_text().splitlines() for worker in self.workers]
        return all(any(all(part in line for part in wanted) for line in lines) for lines in logs)


@pytest.fixture
def make_folder_site(tmp_path: Path, kafka: str, redis_url: str) -> Iterator[MakeFolderSite]:
    """Makes a survey that begins now, with its file in the folder, and shares the agents between all surveys."""
    (tmp_path / "surveys").mkdir()
    group = f"group-{time.time_ns()}"
    named = {"LDPSTREAM_KAFKA": kafka, "LDPSTREAM_REDIS": redis_url, "LDPSTREAM_SURVEY": str(tmp_path / "surveys")}
    environment = dict(os.environ) | named | {"LDPSTREAM_GROUP": group, "PYTHONPATH": str(Path(__file__).parents[2])}
    sites = list[FolderSite]()

    def make(name: str) -> FolderSite:
        start = datetime.now(UTC).replace(microsecond=0).isoformat()
        new = tmp_path / f"{name}-{time.time_ns()}.toml"
        new.write_text(SURVEY.format(name=new.stem, start=start, step_seconds=60))
        survey, settings = load_survey(new), Settings.model_validate({"kafka": kafka, "redis": redis_url, "group": group})
        site = FolderSite(survey, settings, RedisCountStore(survey, connect(settings)), environment, tmp_path)
        if sites:
            site.workers = sites[0].workers
        sites.append(site)
        new.rename(site.file)
        return site

    yield make
    for worker in sites[0].workers if sites else ():
        if worker.process.poll() is None:
            worker.kill()


def test_a_folder_that_changes_is_counted_exactly(make_folder_site: MakeFolderSite, tmp_path: Path) -> None:
    rng = np.random.default_rng(7)
    kept, removed = make_folder_site("kept"), make_folder_site("removed")
    broken = tmp_path / "surveys" / "broken.toml"
    broken.write_text("name = [")
    first = kept.start()
    for site in (kept, removed):
        site.exchange(rng, 200)
    assert f'"file": "{broken}"' in first.log.read_text()
    kept.start()
    kept.until(lambda: kept.told("counting"))
    for site in (kept, removed):
        site.exchange(rng, 200)
    removed.check()

    added = make_folder_site("added")
    kept.exchange(rng, 200)
    added.until(lambda: added.told("survey added"))
    added.exchange(rng, 200)
    removed.file.unlink()
    removed.until(lambda: removed.told("survey removed"))
    for site in (kept, added):
        site.exchange(rng, 200)
    assert removed.counted() == removed.n_sent

    broken.unlink()
    make_folder_site("mended").exchange(rng, 200)
    first.kill()
    for site in (kept, added):
        site.exchange(rng, 200)
        site.check()
    kept.workers[1].stop()
    kept.check_logs()


class FolderGateway:
    """A gateway of a folder of surveys, as a process. Does not wait until it serves."""

    def __init__(self, log: Path, env: Mapping[str, str], surveys: Path) -> None:
        (self.port,), self.log = free_ports(1), log
        own = {"LDPSTREAM_GATEWAY_PORT": str(self.port), "LDPSTREAM_GATEWAY_RATE": "1000000"}
        self.process = start_command(log, {**env, **own}, "gateway", surveys)

    def post(self, envelope: bytes) -> tuple[int, str]:
        """Posts an envelope, and returns the status and the title of the problem, if any; (0, "") without an answer."""
        kind = {"Content-Type": "application/octet-stream"}
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}/v1/reports", envelope, kind)
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
                return answer.status, ""
        except urllib.error.HTTPError as refused:
            with refused:
                return refused.code, json.load(refused)["title"]
        except OSError:
            return 0, ""

    def until(self, envelope: bytes, *wanted: object) -> None:
        """Posts an envelope until the answer is the wanted one."""
        wait_until(lambda: self.post(envelope) == wanted, self.log.read_text)

    def surveys(self) -> dict[str, str]:
        """Returns the fingerprint of each survey, by name."""
        listed = json.loads(get(f"http://127.0.0.1:{self.port}/v1/surveys")[1])
        return {survey["name"]: survey["fingerprint"] for survey in listed["surveys"]}


def test_a_gateway_takes_reports_of_a_folder_that_changes(make_folder_site: MakeFolderSite, tmp_path: Path) -> None:
    rng = np.random.default_rng(8)
    kept, removed, bad = (make_folder_site(name) for name in ("kept", "removed", "bad"))
    with KafkaAdminClient(bootstrap_servers=bad.settings.kafka) as admin:
        late = {"num_partitions": 1, "replication_factor": 1, "configs": {"message.timestamp.type": "CreateTime"}}
        admin.create_topics({bad.survey.reports_topic: late})

    def envelope(site: FolderSite) -> bytes:
        return sound(site.survey, rng, site.survey.step_at(now_ms()), 0)

    gateway = FolderGateway(tmp_path / "gateway.log", kept.environment, tmp_path / "surveys")
    try:
        gateway.until(envelope(kept), 202, "")
        gateway.until(envelope(removed), 202, "")
        gateway.until(envelope(bad), 503, "survey unavailable")
        added = make_folder_site("added")
        gateway.until(envelope(added), 202, "")
        removed.file.unlink()
        gateway.until(envelope(removed), 409, "wrong survey")
        assert gateway.surveys() == {site.survey.name: site.survey.fingerprint.hex() for site in (kept, bad, added)}
        sent = [(site, envelope(site)) for site in (kept, added) * 10]
        for _, value in sent:
            gateway.until(value, 202, "")
        for site in (kept, added):
            values = [record.value for record in site.read(site.survey.reports_topic) if record.value]
            assert Counter(value for one, value in sent if one is site) < Counter(values)  # and the first report
            assert {decode_envelope(value).fingerprint for value in values} == {site.survey.fingerprint}
        gateway.process.terminate()
        assert gateway.process.wait(ENDED_S) == 0
    finally:
        gateway.process.kill()
        gateway.process.wait()
    text = gateway.log.read_text()
    assert "Traceback" not in text
    assert '"event": "survey not served"' in text
