"""Reports sent in transactions, with a real Kafka and a real Redis."""

import numpy as np
from kafka import KafkaConsumer, TopicPartition

from tests.agents.samples import PANES, sound

from .agent_site import PARTITIONS, MakeSite
from .rig import PATIENCE_S, free_ports, get


def test_a_transaction_marker_at_the_end_is_not_a_lost_record(kafka: str, redis_url: str, make_site: MakeSite) -> None:
    """The checkpoints reach the log's end, after the last marker. The metric behind the alert on lost records stays 0."""
    site, rng, port = make_site(kafka, redis_url, step_seconds=3600), np.random.default_rng(9), free_ports(1)[0]
    worker = site.start(LDPSTREAM_METRICS_PORT=str(port))

    def metric(name: str) -> float:
        lines = get(f"http://127.0.0.1:{port}/metrics")[1].splitlines()
        return float(next(line for line in lines if line.startswith(f"{name} ")).split()[1])

    with site.producer(transactional_id=site.survey.name) as producer:
        producer.init_transactions()
        for end in (producer.commit_transaction, producer.abort_transaction, producer.commit_transaction):
            producer.begin_transaction()
            for partition in range(PARTITIONS):
                value = sound(site.survey, rng, 0, partition % len(PANES), 3)
                producer.send(site.survey.reports_topic, value, partition=partition)
            producer.flush(timeout=PATIENCE_S)
            end()
    partitions = [TopicPartition(site.survey.reports_topic, number) for number in range(PARTITIONS)]
    ends = dict.fromkeys(range(PARTITIONS), 6)  # a record and a marker for each of three transactions
    with KafkaConsumer(bootstrap_servers=kafka) as consumer:  # the broker writes the markers after it has answered the producer
        site.until(lambda: {p.partition: offset for p, offset in consumer.end_offsets(partitions).items()} == ends)
    site.until(lambda: site.store.positions() == ends)
    assert metric("ldpstream_missing_offsets_total") == 0
    assert metric("ldpstream_gaps_total") == 0
    assert sum(table.n for table in site.store.tables(range(1)).values()) == 3 * 3 * PARTITIONS
    worker.stop()
    site.check_logs()
