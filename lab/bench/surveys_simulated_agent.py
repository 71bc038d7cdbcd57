"""The dispatcher of an agent with many surveys in one process, without Kafka.

python -m lab.bench.surveys_simulated_agent SURVEYS RECORDS SECONDS
"""

import asyncio
import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import NamedTuple

import numpy as np

from lab.bench.service_survey import SEED, random_reports
from lab.bench.surveys_results import SimulatedAgent
from lab.bench.surveys_site import ATTRIBUTES, PRESENT_STEP, SimulatedSurveys, own_costs
from ldpstream.agents.counting import Counting
from ldpstream.agents.dispatcher import Dispatcher
from ldpstream.agents.log import Chunk, DeadLetter, Found
from ldpstream.agents.tally import Record
from ldpstream.runtime.logs import start_log
from ldpstream.runtime.malloc import keep_freed_memory
from ldpstream.runtime.settings import Settings, load_settings
from ldpstream.stores.checkpoint import Checkpoint
from ldpstream.stores.redis_connection import SharedClient
from ldpstream.stores.redis_store import RedisCountStore
from ldpstream.surveys import Survey, seal

PARTITIONS = 4
POLL_S = 0.05


class At(NamedTuple):
    topic: str
    partition: int


class SilentLog:
    def __init__(self, ends: Sequence[int]) -> None:
        self._ends, self.placed = ends, 0

    async def identity(self) -> str:
        return "log"

    async def partitions(self) -> set[int]:
        return set(range(len(self._ends)))

    async def ask_second_client(self, partitions: Sequence[int]) -> None:
        pass

    def shut_out(self) -> str:
        return ""

    async def bounds(self, partitions: Sequence[int]) -> dict[int, tuple[int, int]]:
        return {partition: (0, self._ends[partition]) for partition in partitions}

    async def later(self, times_ms: Mapping[int, int]) -> dict[int, Found | None]:
        return dict.fromkeys(times_ms)

    async def place(self, partition: int, offset: int) -> int:
        self.placed += 1
        return 1

    async def position_if_nothing_read(self, partition: int) -> int | None:
        return None

    async def commit_group(self, offsets: dict[int, int]) -> None:
        pass

    async def send_dead_letters(self, letters: Sequence[DeadLetter]) -> None:
        raise RuntimeError(f"{len(letters)} envelopes of the benchmark were rejected")


class NotingStore(RedisCountStore):
    def __init__(self, survey: Survey, settings: Settings, client: SharedClient) -> None:
        super().__init__(survey, settings, client=client)
        self.committed: dict[int, int] = {}

    def commit(self, partition: int, expected: tuple[int, str] | None, change: Checkpoint) -> bool:
        if written := super().commit(partition, expected, change):
            self.committed[partition] = change.next_offset
        return written


def records_of(survey: Survey, n: int) -> list[list[Record]]:
    rng, appended_ms = np.random.default_rng(SEED), survey.opens_ms(PRESENT_STEP) + 1
    each = n // ATTRIBUTES
    drawn = [(a, random_reports(survey, a, each, rng)) for a in range(ATTRIBUTES)]
    envelopes = [seal(survey, a, 0, PRESENT_STEP, reports[i : i + 1]) for a, reports in drawn for i in range(each)]
    parts = [envelopes[partition::PARTITIONS] for partition in range(PARTITIONS)]
    return [[Record(offset, appended_ms, value) for offset, value in enumerate(part)] for part in parts]


async def measure(n_surveys: int, n_records: int, standing_s: float) -> SimulatedAgent:
    settings = load_settings()
    client = SharedClient(settings)
    with SimulatedSurveys(client.get(), n_surveys) as simulated:
        surveys = simulated.surveys
        logs = [records_of(survey, n_records) for survey in surveys]
        sources = {s.name: SilentLog([len(part) for part in parts]) for s, parts in zip(surveys, logs, strict=True)}
        stores = {survey.name: NotingStore(survey, settings, client=client) for survey in surveys}

        def make(survey: Survey) -> Counting:
            return Counting(survey, stores[survey.name], sources[survey.name], settings.commit_interval_ms / 1000)

        async def fail(survey: Survey, error: Exception) -> None:
            raise error

        before = own_costs(settings)
        dispatcher = Dispatcher(make, lambda *_: None, fail)
        for survey in surveys:
            dispatcher.add(survey, [At(survey.reports_topic, partition) for partition in range(PARTITIONS)])
        await _until(lambda: all(source.placed == PARTITIONS for source in sources.values()))

        began, cpu = time.perf_counter(), time.process_time()
        for survey, parts in zip(surveys, logs, strict=True):
            for partition, records in enumerate(parts):
                dispatcher.take(survey.reports_topic, Chunk(partition, 1, 0, records))
        total = sum(len(part) for parts in logs for part in parts)
        await _until(lambda: sum(sum(store.committed.values()) for store in stores.values()) == total)
        counted_s, record_s = time.perf_counter() - began, (time.process_time() - cpu) / total

        began, cpu = time.perf_counter(), time.process_time()
        await asyncio.sleep(standing_s)
        standing = (time.process_time() - cpu) / (time.perf_counter() - began)
        after = own_costs(settings)
        await dispatcher.close()
    return SimulatedAgent(
        surveys=n_surveys, partitions=n_surveys * PARTITIONS, mib=(after.resident_mib - before.resident_mib) / n_surveys,
        standing_ms=1000 * standing / n_surveys, records=total, record_us=1e6 * record_s, counted_s=counted_s,
        connections=after.redis_connections,
    )  # fmt: skip


async def _until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110  # commits end in threads of the stores
        await asyncio.sleep(POLL_S)


if __name__ == "__main__":
    start_log("warning")  # to standard error
    keep_freed_memory()
    measured = asyncio.run(measure(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])))
    sys.stdout.write(json.dumps(asdict(measured)))
