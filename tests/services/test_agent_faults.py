"""Agents under faults of a real Kafka and a real Redis."""

import time
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from kafka import KafkaAdminClient

from ldpstream.engines.kafka.topics import ensure_topics
from ldpstream.runtime.clock import now_ms
from tests.agents.samples import PANES, sound

from .agent_site import PARTITIONS, MakeSite, Site
from .rig import PATIENCE_S, KafkaNode, free_ports, get


def send_sound(site: Site, rng: np.random.Generator, n_envelopes: int) -> None:
    """Sends sound envelopes of the current step."""
    with site.producer() as producer:
        for _ in range(n_envelopes):
            step = site.survey.step_at(now_ms())
            value = sound(site.survey, rng, step, int(rng.integers(len(PANES))))
            producer.send(site.survey.reports_topic, value, partition=int(rng.integers(PARTITIONS)))
            site.sent[None] += 1
            site.judged[value] = None, step
        producer.flush(timeout=PATIENCE_S)


def delete_reports(site: Site) -> None:
    """Deletes the reports topic and waits until the broker no longer lists it. The broker updates its list with a delay."""
    topic = site.survey.reports_topic
    with KafkaAdminClient(bootstrap_servers=site.settings.kafka) as admin:
        admin.delete_topics([topic])
        site.until(lambda: topic not in admin.list_topics())


def ready(port: int) -> int:
    """HTTP status of `/ready`."""
    return get(f"http://127.0.0.1:{port}/ready")[0]


def test_a_recreated_topic_is_counted_from_its_beginning(kafka: str, redis_url: str, make_site: MakeSite) -> None:
    """The new topic's offsets may exceed the old offsets before an agent notices the change."""
    n_after = 400
    site, rng = make_site(kafka, redis_url), np.random.default_rng(3)
    send_sound(site, rng, 120)
    worker = site.start()
    site.until(lambda: site.counted() == site.n_sent)
    old = {head.log_id for head in site.store.heads().values()}
    late = sum(site.store.rejected().values())  # records of the old topic that a slow machine appended too late
    delete_reports(site)
    ensure_topics(site.settings, site.survey)
    site.sent = Counter()
    send_sound(site, rng, n_after)
    heads = site.store.heads
    site.until(lambda: site.counted() == site.n_sent and not old & {head.log_id for head in heads().values()})
    for head in heads().values():
        assert head.missing is not None
        assert head.missing.below_offset == 0
    first_open = min(site.survey.step_at(head.missing.after_ms) for head in heads().values() if head.missing)
    first_open -= site.survey.lateness_steps
    assert all(key.step >= first_open for key in site.store.tables(range(first_open, 10_000)))
    closed = sum(table.n for table in site.store.tables(range(first_open)).values())
    assert closed <= 120
    rejected = sum(site.store.rejected().values()) - late
    assert sum(table.n for table in site.store.tables(range(first_open, 10_000)).values()) == n_after - rejected
    assert worker.process.poll() is None
    worker.stop()


@pytest.mark.parametrize(
    ("what", "at_first"),
    [("_do_rejoin_group", True), ("_do_heartbeat", False)],
    ids=["joining at first", "as a member"],
)
def test_an_agent_refused_by_its_group_rejoins(
    kafka: str, redis_url: str, make_site: MakeSite, tmp_path: Path, what: str, at_first: bool
) -> None:
    """After a refusal, the Kafka library silently stays out of the group until the library's caller checks."""
    site, rng, shut, port = make_site(kafka, redis_url), np.random.default_rng(6), tmp_path / "SHUT", free_ports(1)[0]
    send_sound(site, rng, 60)
    if at_first:
        shut.touch()
    worker = site.start(changed=("shut-out", what), LDPSTREAM_METRICS_PORT=str(port))
    if not at_first:
        site.until(lambda: site.counted() == site.n_sent and ready(port) == 200)
        shut.touch()
        other = site.start()  # the second agent's arrival makes the first agent rejoin
    site.until(lambda: shut.read_text().count("refused") >= 3 and ready(port) == 503)
    shut.unlink()
    if not at_first:
        other.kill()
    send_sound(site, rng, 60)
    site.until(lambda: site.counted() == site.n_sent and ready(port) == 200)
    site.check()
    assert "not in the group" in worker.log.read_text()
    assert worker.process.poll() is None


@pytest.mark.parametrize("away", ["paused", "stopped"])
def test_an_agent_stops_in_time_while_the_broker_is_down(
    kafka_node: KafkaNode, redis_url: str, make_site: MakeSite, away: str
) -> None:
    """The agent ends with status 0 if the broker is paused or stopped. Another agent counts the remaining reports."""
    site, rng = make_site(kafka_node.bootstrap, redis_url), np.random.default_rng(5)
    send_sound(site, rng, 60)
    worker = site.start()
    site.until(lambda: site.counted() == site.n_sent)
    send_sound(site, rng, 60)
    if away == "paused":
        kafka_node.pause()
        time.sleep(4)
    else:
        kafka_node.stop()
        site.until(lambda: "Unable connect to node" in worker.log.read_text())
    worker.stop()
    if away == "paused":
        kafka_node.resume()
    else:
        kafka_node.start()
    assert "CancelledError" not in worker.log.read_text()
    site.start()
    site.until(lambda: site.counted() == site.n_sent)
    site.check()


def test_a_hang_ends_the_process_and_an_outage_does_not(
    kafka_node: KafkaNode, redis_url: str, make_site: MakeSite, tmp_path: Path
) -> None:
    site, rng = make_site(kafka_node.bootstrap, redis_url), np.random.default_rng(4)

    def checks() -> int:
        told = tmp_path / "CHECKS"
        return len(told.read_text().splitlines()) if told.exists() else 0

    send_sound(site, rng, 60)
    worker = site.start(changed=("hangs",))
    site.until(lambda: site.counted() == site.n_sent)
    kafka_node.pause()
    before = checks()
    site.until(lambda: checks() >= before + 6 or worker.process.poll() is not None)  # a hang ends the process after 5 checks
    assert worker.process.poll() is None
    kafka_node.resume()
    send_sound(site, rng, 60)
    site.until(lambda: site.counted() == site.n_sent)
    (tmp_path / "HANG").touch()
    send_sound(site, rng, 60)
    assert worker.process.wait(PATIENCE_S) == 1
    (tmp_path / "HANG").unlink()
    site.start()
    site.until(lambda: site.counted() == site.n_sent)
