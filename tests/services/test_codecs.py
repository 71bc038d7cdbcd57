"""Agents count all reports that a client or the broker compressed, with a real Kafka and a real Redis."""

import asyncio
import time
from typing import ClassVar

import numpy as np
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.consumer import fetcher
from kafka import KafkaAdminClient
from kafka.admin import ConfigResource, ConfigResourceType

from ldpstream.agents import Record, tally
from ldpstream.agents.consumer.batches import FetchedBytes
from tests.agents.samples import PANES, sound

from .agent_site import PARTITIONS, MakeSite, Site
from .rig import PATIENCE_S, free_ports, get

CODECS = {"gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
ENVELOPES = 125  # for each codec and writer; the broker and the clients each compress at least 500 in all


class Codecs(FetchedBytes):
    """Remembers the codec of every fetched batch."""

    seen: ClassVar[set[int]] = set()

    def __init__(self, raw: bytes) -> None:
        super().__init__(raw)
        start = 0
        while start + 23 <= len(raw):
            self.seen.add(raw[start + 22] & 7)
            start += 12 + int.from_bytes(raw[start + 8 : start + 12], "big")


async def codecs_in_log(site: Site) -> set[int]:
    """Codecs of the batches in the broker's log."""
    Codecs.seen.clear()
    partitions = [TopicPartition(site.survey.reports_topic, number) for number in range(PARTITIONS)]
    consumer = AIOKafkaConsumer(bootstrap_servers=site.settings.kafka, auto_offset_reset="earliest")
    await consumer.start()
    try:
        consumer.assign(partitions)
        await consumer.seek_to_beginning()
        ends = await consumer.end_offsets(partitions)
        while any([await consumer.position(partition) < ends[partition] for partition in partitions]):
            await consumer.getmany(timeout_ms=500)
    finally:
        await consumer.stop()
    return set(Codecs.seen)


async def send(site: Site, values: list[bytes], codec: str | None) -> None:
    """Sends the values from a client that compresses with `codec`."""
    producer = AIOKafkaProducer(bootstrap_servers=site.settings.kafka, acks="all", compression_type=codec, linger_ms=50)
    await producer.start()
    try:
        topic = site.survey.reports_topic
        sent = [await producer.send(topic, value, partition=number % PARTITIONS) for number, value in enumerate(values)]
        await asyncio.gather(*sent)
    finally:
        await producer.stop()


def test_reports_in_every_kafka_codec_and_in_transactions_are_counted(
    kafka: str, redis_url: str, make_site: MakeSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker compresses the reports (topic setting `compression.type`), or the client compresses them.

    A transaction's marker at the end of the log is not a lost record.
    """
    monkeypatch.setattr(fetcher, "MemoryRecords", Codecs)
    site, rng, values = make_site(kafka, redis_url, step_seconds=3600), np.random.default_rng(8), list[bytes]()

    def write(codec: str | None) -> None:
        """Sends sound envelopes of the first step."""
        more = [sound(site.survey, rng, 0, number % len(PANES), 1 + number % 9) for number in range(ENVELOPES)]
        asyncio.run(send(site, more, codec))
        values.extend(more)

    for codec, number in CODECS.items():
        with KafkaAdminClient(bootstrap_servers=kafka) as admin:
            topic = ConfigResource(ConfigResourceType.TOPIC, site.survey.reports_topic, {"compression.type": codec})
            admin.alter_configs([topic])
        deadline = time.monotonic() + PATIENCE_S
        while number not in asyncio.run(codecs_in_log(site)):  # the broker applies the setting after a delay
            assert time.monotonic() < deadline, f"no batch in {codec}"
            write(None)
    with KafkaAdminClient(bootstrap_servers=kafka) as admin:
        topic = ConfigResource(ConfigResourceType.TOPIC, site.survey.reports_topic, {"compression.type": "producer"})
        admin.alter_configs([topic])
    for codec in CODECS:
        write(codec)
    (port,) = free_ports(1)
    worker = site.start(LDPSTREAM_METRICS_PORT=str(port))
    site.until(lambda: site.counted() == len(values))

    with site.producer(transactional_id=site.survey.name) as producer:
        producer.init_transactions()
        for end in (producer.commit_transaction, producer.abort_transaction, producer.commit_transaction):
            producer.begin_transaction()
            for partition in range(PARTITIONS):
                values.append(sound(site.survey, rng, 0, partition % len(PANES), 3))
                producer.send(site.survey.reports_topic, values[-1], partition=partition)
            producer.flush(timeout=PATIENCE_S)
            end()
    at_end = len(values) + 3 * PARTITIONS  # each transaction ends with a marker in each partition
    site.until(lambda: sum(site.store.positions().values()) == at_end)
    metrics = get(f"http://127.0.0.1:{port}/metrics")[1].splitlines()
    assert {"ldpstream_missing_offsets_total 0.0", "ldpstream_gaps_total 0.0"} <= set(metrics)
    worker.stop()
    assert site.store.rejected() == {}
    expected = tally(site.survey, [Record(i, site.survey.start_ms, value) for i, value in enumerate(values)])
    assert site.store.tables(range(10)) == expected.counts
    site.check_logs()
