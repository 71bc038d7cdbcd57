"""Reports sent in transactions, with a real Kafka and a real Redis."""

import urllib.request
from collections.abc import Callable

import numpy as np
from kafka import KafkaConsumer, TopicPartition

from tests.agents.samples import PANES, sound

from .rig import free_ports
from .test_agents import PARTITIONS, Site, make_site

__all__ = ["make_site"]


def test_a_transaction_marker_at_the_end_is_not_a_lost_record(
    kafka: str, redis_url: str, make_site: Callable[..., Site]
) -> None:
    """The checkpoints reach the log's end, after the last marker. The metric behind the alert on lost records stays 0."""
    site, rng, port = make_site(kafka, redis_url, step_seconds=3600), np.random.default_rng(9), free_ports(1)[0]
    worker = site.start(LDPSTREAM_METRICS_PORT=str(port))

    def metric(name: str) -> float:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as page:
            lines = page.read().decode().splitlines()
        return float(next(line for line in lines if line.startswith(f"{name} ")).split()[1])

    with site.producer(transactional_id=site.survey.name) as producer:
        producer.init_transactions()
        for end in (producer.commit_transaction, producer.abort_transaction, producer.commit_transaction):
            producer.begin_transaction()
            for partition in range(PARTITIONS):
                value = sound(site.survey, rng, 0, partition % len(PANES), 3)
                producer.send(site.survey.reports_topic, value, partition=partition)
            producer.flush(timeout=30)
            end()
    partitions = [TopicPartition(site.survey.reports_topic, number) for number in range(PARTITIONS)]
    with KafkaConsumer(bootstrap_servers=kafka) as consumer:
        ends = {partition.partition: offset for partition, offset in consumer.end_offsets(partitions).items()}
    assert set(ends.values()) == {6}  # a record and a marker for each of three transactions
    site.until(lambda: site.store.positions() == ends)
    assert metric("ldpstream_missing_offsets_total") == 0
    assert metric("ldpstream_gaps_total") == 0
    assert metric("ldpstream_reports_total") == 3 * 3 * PARTITIONS
    worker.stop()
    site.check_logs()
