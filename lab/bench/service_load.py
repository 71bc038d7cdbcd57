import asyncio
import itertools
import os
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from aiokafka import AIOKafkaProducer

from lab.bench.service_survey import SEED, random_reports
from ldpstream.agents import Record, tally
from ldpstream.engines import PaneKey
from ldpstream.mechanisms import CountTable
from ldpstream.producers.kafka_sink import BATCH_BYTES
from ldpstream.runtime.settings import Settings
from ldpstream.surveys import Survey, seal
from ldpstream.surveys.envelope import reports_per_envelope
from ldpstream.surveys.report_key import REPORT_KEY_BYTES

POOL = 10_000  # largest number of different envelopes; the log repeats these envelopes
POOL_BYTES = 32 * 2**20
BATCHES_UNDER_WAY = 256


@dataclass(frozen=True, slots=True, eq=False)
class Load:
    pool: list[bytes]
    rounds: int
    reports: int
    counts: dict[PaneKey, CountTable]

    @property
    def records(self) -> int:
        return self.rounds * len(self.pool)

    @property
    def bytes(self) -> int:
        return self.rounds * sum(map(len, self.pool))


def make_load(survey: Survey, attributes: Sequence[int], envelope_bytes: int, records: int) -> Load:
    rng = np.random.default_rng(SEED)
    most = min(POOL, records, POOL_BYTES // max(envelope_bytes, 1))
    each = max(1, most // len(attributes))
    pool = []
    for attribute in attributes:
        row_bytes = survey.mechanisms[attribute][0].row_bytes
        size = reports_per_envelope(row_bytes, envelope_bytes) if envelope_bytes else 1
        reports = random_reports(survey, attribute, each * size, rng)
        pool += [seal(survey, attribute, 0, 0, reports[i : i + size]) for i in range(0, len(reports), size)]
    shuffled = [pool[i] for i in rng.permutation(len(pool))]
    once = tally(survey, [Record(i, survey.start_ms, envelope) for i, envelope in enumerate(shuffled)])
    rounds = max(1, round(records / len(pool)))
    counts = {key: CountTable(table.mechanism, rounds * table.n, rounds * table.counts) for key, table in once.counts.items()}
    return Load(shuffled, rounds, rounds * once.reports, counts)


async def fill(settings: Settings, topic: str, load: Load, partitions: int, keyed: bool = False) -> float:
    producer = AIOKafkaProducer(
        **settings.kafka_options(),
        acks="all",
        max_batch_size=BATCH_BYTES,
        max_request_size=2 * BATCH_BYTES,
    )
    await producer.start()
    try:
        began, under_way = time.perf_counter(), deque[asyncio.Future[object]]()
        limit = max(1, load.records // (2 * partitions))
        for number, batch in enumerate(_batches(producer, load, limit, keyed)):
            under_way.append(await producer.send_batch(batch, topic, partition=number % partitions))
            if len(under_way) > BATCHES_UNDER_WAY:
                await under_way.popleft()
        await asyncio.gather(*under_way)
        return time.perf_counter() - began
    finally:
        await producer.stop()


def _batches(producer: AIOKafkaProducer, load: Load, limit: int, keyed: bool) -> Iterator[Any]:
    batch = producer.create_batch()
    for envelope in itertools.chain.from_iterable(itertools.repeat(load.pool, load.rounds)):
        record: dict[str, Any] = {"key": None, "value": envelope, "timestamp": None}
        record |= {"headers": [("key", os.urandom(REPORT_KEY_BYTES))]} if keyed else {}
        while batch.record_count() >= limit or batch.append(**record) is None:
            yield batch
            batch = producer.create_batch()
    yield batch
