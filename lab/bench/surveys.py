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

import numpy as np

from lab.bench.service_load import fill, make_load
from lab.bench.service_site import BenchError
from lab.bench.service_survey import SEED, random_reports
from lab.bench.surveys_results import Role, Served, SurveysBench
from lab.bench.surveys_site import ATTRIBUTES, PRESENT_STEP, SurveysSite, cpu_s
from lab.processes import cores
from ldpstream.engines.kafka.clients import Producer
from ldpstream.runtime.clock import now_ms
from ldpstream.runtime.settings import Settings
from ldpstream.surveys import seal

DAY_S = 86_400
PARTITIONS = 4
BURSTS = 4  # envelopes of an attribute in a step
POLL_S = 0.05
COUNTED_POLL_S = 0.2
Seen = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Sizes:
    """Sizes of the measurements.

    Attributes:
        together: numbers of surveys that one agent and one estimator serve.
        apart: numbers of surveys that have an agent and an estimator each.
        records: records in all logs together before the agents start.
        standing_s: seconds of the measurement without records.
        reports: reports of an attribute in each burst of a step.
    """

    together: tuple[int, ...]
    apart: tuple[int, ...]
    records: int
    standing_s: float
    step_s: int
    steps: int
    reports: int


FULL = Sizes((1, 10, 50), (5, 10), 1_000_000, 15.0, 30, 3, 100)
QUICK = Sizes((2,), (), 2_000, 0.5, 2, 1, 20)


def bench(settings: Settings, sizes: Sizes, seen: Seen = lambda _: None) -> SurveysBench:
    if not Path("/proc/self/smaps_rollup").exists():
        raise BenchError("this benchmark reads memory and connections from /proc, which only Linux has")
    result = SurveysBench(cores())
    with TemporaryDirectory(prefix="ldpstream-bench-") as place:
        folder = Path(place)
        for n, apart in [(n, False) for n in sizes.together] + [(n, True) for n in sizes.apart]:
            result.served.append(_serve(settings, folder, sizes, n, apart, seen))
    return result


def _serve(settings: Settings, folder: Path, sizes: Sizes, n: int, apart: bool, seen: Seen) -> Served:
    what = f"{n} surveys {'apart' if apart else 'together'}"
    seen(f"{what}: counting")
    with SurveysSite(settings, folder, n, DAY_S, PARTITIONS, 0, apart) as site:
        counted = _count(site, sizes.records // n)
        seen(f"{what}: standing")
        site.start_estimators()
        _until_working(site)
        standing = _idle_cores(site, sizes.standing_s)
    seen(f"{what}: estimating")
    with SurveysSite(settings, folder, n, sizes.step_s, PARTITIONS, PRESENT_STEP, apart) as site:
        p50, most = np.percentile(_estimate(site, sizes), [50, 100])
        agents, estimators = Role(site.costs(site.agents), standing[0]), Role(site.costs(site.estimators), standing[1])
        return Served(n, len(site.agents), *counted, sizes.steps, (float(p50), float(most)), agents, estimators)


def _count(site: SurveysSite, records: int) -> tuple[int, float]:
    loads = [make_load(survey, range(ATTRIBUTES), 0, records) for survey in site.surveys]
    for survey, load in zip(site.surveys, loads, strict=True):
        asyncio.run(fill(site.settings, survey.reports_topic, load, PARTITIONS))
    each, total = loads[0].records, sum(load.records for load in loads)
    began = time.perf_counter()
    site.start_agents()
    site.until(lambda: not site.uncounted(each), site.agents, "all records are counted", COUNTED_POLL_S)
    counted_s = time.perf_counter() - began
    for store, load in zip(site.stores, loads, strict=True):
        if store.tables(range(1)) != load.counts:
            raise BenchError("the count tables differ from the reports sent")
    return total, counted_s


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


def _idle_cores(site: SurveysSite, seconds: float) -> tuple[float, float]:
    began, agents, estimators = time.perf_counter(), cpu_s(site.agents), cpu_s(site.estimators)
    time.sleep(seconds)
    seconds = time.perf_counter() - began
    return (cpu_s(site.agents) - agents) / seconds, (cpu_s(site.estimators) - estimators) / seconds


def _estimate(site: SurveysSite, sizes: Sizes) -> list[float]:
    site.start_agents()
    site.start_estimators()
    late: list[float] = []
    with _reports_arriving(site, sizes):
        _published_s(site, site.survey.step_at(now_ms()))
        first = site.survey.step_at(now_ms()) + 1  # the first step that closes after all processes are warm
        for step in range(first, first + sizes.steps):
            late += _published_s(site, step)
    return late


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
