"""Measures what many surveys cost, served together by one agent and one estimator, or apart by a pair of processes each.

All processes compete for the same processor: compare figures of one run only.
"""

import asyncio
import itertools
import time
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event
from typing import TypeVar

import msgspec
import numpy as np

from lab.bench.service_load import fill, make_load
from lab.bench.service_site import BenchError, Process
from lab.bench.service_survey import SEED, random_reports
from lab.bench.surveys_results import Role, Served, SimulatedAgent, SimulatedEstimator, SurveysBench
from lab.bench.surveys_site import ATTRIBUTES, PRESENT_STEP, SurveysSite, ask, cpu_s
from ldpstream.processes import cores
from ldpstream.runtime.clock import now_ms
from ldpstream.runtime.kafka_producer import Producer
from ldpstream.runtime.settings import Settings
from ldpstream.surveys import seal

DAY_S = 86_400
PARTITIONS = 4
BURSTS = 4  # envelopes of an attribute in a step
POLL_S = 0.05
COUNTED_POLL_S = 0.2
SIMULATION_S = 1800.0  # longest wait for a simulation
Seen = Callable[[str], None]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Sizes:
    """Sizes of the measurements.

    Attributes:
        together: numbers of surveys that one agent and one estimator serve.
        apart: numbers of surveys that have an agent and an estimator each.
        records: records in all logs together before the agents start.
        standing_s: seconds of the measurement without records.
        reports: reports of an attribute in each burst of a step.
        simulated: number of surveys without Kafka; 0 for no such measurement.
        simulated_records: records of each of these surveys.
    """

    together: tuple[int, ...]
    apart: tuple[int, ...]
    records: int
    standing_s: float
    step_s: int
    steps: int
    reports: int
    simulated: int
    simulated_records: int


FULL = Sizes((1, 10, 50), (5, 10), 1_000_000, 15.0, 30, 3, 100, 500, 2000)
QUICK = Sizes((2,), (), 2_000, 0.5, 2, 1, 20, 3, 40)


def bench(settings: Settings, sizes: Sizes, seen: Seen = lambda _: None) -> SurveysBench:
    if not Path("/proc/self/smaps_rollup").exists():
        raise BenchError("this benchmark reads memory and connections from /proc, which only Linux has")
    result = SurveysBench(cores())
    with TemporaryDirectory(prefix="ldpstream-bench-") as place:
        folder = Path(place)
        for n, apart in [(n, False) for n in sizes.together] + [(n, True) for n in sizes.apart]:
            result.served.append(_serve(settings, folder, sizes, n, apart, seen))
        if sizes.simulated:
            simulated, records = str(sizes.simulated), str(sizes.simulated_records)
            seen(f"{simulated} surveys without Kafka: counting")
            result.agent = _simulated(folder, "agent", SimulatedAgent, simulated, records, str(sizes.standing_s))
            seen(f"{simulated} surveys without Kafka: estimating")
            result.estimator = _simulated(folder, "estimator", SimulatedEstimator, simulated)
    return result


def _simulated(folder: Path, role: str, kind: type[T], *arguments: str) -> T:
    process = Process(f"lab.bench.surveys_simulated_{role}", list(arguments), {}, folder / f"simulated-{role}.log")
    try:
        return msgspec.convert(process.answer(SIMULATION_S), kind)
    finally:
        process.kill()


def _serve(settings: Settings, folder: Path, sizes: Sizes, n: int, apart: bool, seen: Seen) -> Served:
    what = f"{n} surveys {'apart' if apart else 'together'}"
    seen(f"{what}: counting")
    with SurveysSite(settings, folder, n, DAY_S, PARTITIONS, 0, apart) as site:
        counted = _count(site, sizes.records // n)
        seen(f"{what}: standing")
        site.start_estimators()
        _until_working(site)
        standing = _cores_within(site, lambda: time.sleep(sizes.standing_s))
    seen(f"{what}: estimating")
    with SurveysSite(settings, folder, n, sizes.step_s, PARTITIONS, PRESENT_STEP, apart) as site:
        late, working = _estimate(site, sizes)
        p50, p90, most = np.percentile(late, [50, 90, 100])
        agents = Role(site.costs(site.agents), standing[0], working[0])
        estimators = Role(site.costs(site.estimators), standing[1], working[1])
        [agent, *_], [estimator, *_] = site.agents, site.estimators
        return Served(
            n, len(site.agents), *counted, sizes.steps, (float(p50), float(p90), float(most)), agents, estimators,
            ask(agent.port, "/metrics"), ask(estimator.port, "/metrics"),
            None if apart else ask(estimator.page_port, "/"),
            None if apart else ask(estimator.page_port, "/api/v1/surveys"),
        )  # fmt: skip


def _count(site: SurveysSite, records: int) -> tuple[int, float, float, float | None, float]:
    loads = [make_load(survey, range(ATTRIBUTES), 0, records) for survey in site.surveys]
    for survey, load in zip(site.surveys, loads, strict=True):
        asyncio.run(fill(site.settings, survey.reports_topic, load, PARTITIONS))
    each, total = loads[0].records, sum(load.records for load in loads)
    first: tuple[float, int] | None = None
    read_s = 0.0
    began = time.perf_counter()
    site.start_agents()

    def all_counted() -> bool:
        nonlocal first, read_s
        left, now_s = site.uncounted(each), time.perf_counter()
        if left < total and first is None:
            first = now_s, total - left
        if not read_s and site.all_read():
            read_s = now_s - began
        return not left and read_s > 0

    site.until(all_counted, site.agents, "all records are counted", COUNTED_POLL_S)
    ended, cpu = time.perf_counter(), cpu_s(site.agents)
    for store, load in zip(site.stores, loads, strict=True):
        if store.tables(range(1)) != load.counts:
            raise BenchError("the count tables differ from the reports sent")
    left_s, left = (ended - first[0], total - first[1]) if first else (0.0, 0)
    return total, read_s, ended - began, left / left_s if left else None, cpu


def _until_working(site: SurveysSite) -> None:
    wanted = len(site.surveys) // len(site.estimators)

    def working() -> bool:
        try:
            return all(_works(estimator.port) == wanted for estimator in site.estimators)
        except OSError:
            return False

    site.until(working, site.estimators, "the estimators work", poll_s=0.5)


def _works(port: int) -> int:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as page:
        lines = page.read().decode().splitlines()
    return sum(line.startswith("ldpstream_survey_working{") and line.endswith(" 1.0") for line in lines)


def _cores_within(site: SurveysSite, work: Callable[[], object]) -> tuple[float, float]:
    began, agents, estimators = time.perf_counter(), cpu_s(site.agents), cpu_s(site.estimators)
    work()
    seconds = time.perf_counter() - began
    return (cpu_s(site.agents) - agents) / seconds, (cpu_s(site.estimators) - estimators) / seconds


def _estimate(site: SurveysSite, sizes: Sizes) -> tuple[list[float], tuple[float, float]]:
    site.start_agents()
    site.start_estimators()
    late: list[float] = []

    def timed() -> None:
        first = site.survey.step_at(now_ms()) + 1  # the first step that closes after all processes are warm
        for step in range(first, first + sizes.steps):
            late.extend(_published_s(site, step))

    with _reports_arriving(site, sizes):
        warm = site.survey.step_at(now_ms())
        _published_s(site, warm)
        busy = _cores_within(site, timed)
    return late, busy


def _published_s(site: SurveysSite, step: int) -> list[float]:
    late, close_s = dict[int, float](), site.survey.closes_ms(step) / 1000

    def all_published() -> bool:
        next_steps, now_s = site.next_steps(), time.time()
        late.update({i: now_s - close_s for i, next_step in enumerate(next_steps) if next_step > step and i not in late})
        return len(late) == len(site.surveys)

    site.until(all_published, [*site.agents, *site.estimators], "the estimates", POLL_S)
    return list(late.values())


@contextmanager
def _reports_arriving(site: SurveysSite, sizes: Sizes) -> Iterator[None]:
    rng, over = np.random.default_rng(SEED), Event()
    answers = [
        (survey, attribute, random_reports(survey, attribute, sizes.reports, rng))
        for survey in site.surveys
        for attribute in range(ATTRIBUTES)
    ]

    def produce() -> None:
        with closing(Producer(site.settings, 10_000, 10_000, 20_000, linger_ms=5)) as producer:
            for burst in itertools.count():
                step = site.survey.step_at(now_ms())
                for survey, attribute, given in answers:
                    envelope = seal(survey, attribute, 0, step, given)
                    producer.send(survey.reports_topic, envelope, partition=(burst + attribute) % PARTITIONS)
                if over.wait(sizes.step_s / BURSTS):
                    return

    with ThreadPoolExecutor(1) as pool:
        producing = pool.submit(produce)
        try:
            yield
        finally:
            over.set()
        producing.result()
