"""Agents as real processes with a real Kafka and a real Redis."""

from pathlib import Path

import msgspec
import numpy as np
import pytest
from kafka import KafkaAdminClient, KafkaConsumer, TopicPartition

from ldpstream.engines.kafka.topics import TopicError, ensure_topics
from ldpstream.runtime.settings import Settings
from ldpstream.surveys import load_survey

from .agent_site import PARTITIONS, SURVEY, MakeSite
from .conftest import MakeTopic
from .rig import PATIENCE_S, free_ports, get


def test_a_stopping_agent_commits_and_counts_transactions(kafka: str, redis_url: str, make_site: MakeSite) -> None:
    site = make_site(kafka, redis_url)
    rng, port = np.random.default_rng(1), free_ports(1)[0]
    ensure_topics(site.settings, site.survey)  # has no effect: the site has created the topics
    with KafkaAdminClient(bootstrap_servers=kafka) as admin:
        topics = {topic["name"]: len(topic["partitions"]) for topic in admin.describe_topics()}
    assert topics[site.survey.reports_topic] == PARTITIONS
    assert topics[site.survey.estimates_topic] == 1
    with site.producer() as producer:
        site.send(producer, rng, 200)
    with site.producer(transactional_id=site.survey.name) as producer:
        producer.init_transactions()
        # reports of committed and of aborted transactions are counted
        for end in (producer.commit_transaction, producer.abort_transaction):
            producer.begin_transaction()
            site.send(producer, rng, 20)
            end()
    with site.producer() as producer:
        site.send(producer, rng, 200)
    with KafkaConsumer(bootstrap_servers=kafka) as consumer:
        ends = consumer.end_offsets([TopicPartition(site.survey.reports_topic, p) for p in range(PARTITIONS)])
    assert sum(ends.values()) > site.n_sent  # each end of a transaction is a marker
    worker = site.start(changed=("unhurried",), LDPSTREAM_METRICS_PORT=str(port))

    url = f"http://127.0.0.1:{port}"
    site.until(lambda: f"ldpstream_records_total {sum(ends.values()):.1f}" in get(f"{url}/metrics")[1])
    assert get(f"{url}/ready") == (200, "ok\n")
    assert get(f"{url}/nowhere")[0] == 404
    assert site.counted() < site.n_sent  # only the last commit writes the counts
    worker.stop()
    site.check()
    site.check_logs()


class _NotUtf8(str):
    """A header name that our client library cannot encode; other clients send such names."""

    __slots__ = ()

    def encode(self, *_: str) -> bytes:
        return b"\xff"


def test_unreadable_batches_do_not_stop_an_agent(kafka: str, redis_url: str, make_site: MakeSite) -> None:
    """The broker accepts a batch of 40 MB in 40 kB, and a header name that is not UTF-8. Other gzip batches count."""
    site = make_site(kafka, redis_url, 3600)  # with long steps, no report is late on a slow machine
    rng, topic = np.random.default_rng(1), site.survey.reports_topic
    with site.producer(compression_type="gzip", batch_size=10**8, linger_ms=3000, max_request_size=10**8) as producer:
        large = [producer.send(topic, bytes(10**6), partition=1) for _ in range(40)]
        producer.flush(timeout=PATIENCE_S)
    assert len({future.get().offset for future in large}) == 40
    with site.producer(compression_type="gzip") as producer:
        site.send(producer, rng, 200)
    with site.producer() as producer:
        producer.send(topic, b"x", partition=2, headers=[(_NotUtf8("name"), b"x")]).get()
        site.send(producer, rng, 200)
    worker = site.start()
    site.until(lambda: site.counted() == site.n_sent + 41)
    worker.stop()
    assert site.store.rejected()["unreadable batch"] == 41
    assert sum(table.n for table in site.store.tables(range(10_000)).values()) > 1000
    site.check_logs()


def test_a_reports_topic_with_producer_time_stamps_is_refused(kafka: str, make_topic: MakeTopic, tmp_path: Path) -> None:
    topic = make_topic(**{"message.timestamp.type": "CreateTime"})
    file = tmp_path / "survey.toml"
    file.write_text(SURVEY.format(name="refused", start="2026-01-05T00:00:00Z", step_seconds=2))
    survey = msgspec.structs.replace(load_survey(file), name=topic)
    with KafkaAdminClient(bootstrap_servers=kafka) as admin:
        options = {"num_partitions": 1, "replication_factor": 1, "configs": {"message.timestamp.type": "CreateTime"}}
        admin.create_topics({survey.reports_topic: options}, wait_for_metadata=True)
    with pytest.raises(TopicError, match=r"message\.timestamp\.type=LogAppendTime, got CreateTime"):
        ensure_topics(Settings(kafka=kafka), survey)
