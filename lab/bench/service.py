"""Measures the speed of the service over a real Kafka and a real Redis, with each part in a separate process.

All parts compete for the same processor: compare figures of one run only.
"""

import asyncio
import itertools
import json
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from threading import Event

import numpy as np

from lab.bench.service_keys import measure_keys
from lab.bench.service_load import Load, fill, make_load
from lab.bench.service_results import Closed, Counted, Growth, Phases, Produced, Recovery, Run, ServiceBench, Stock
from lab.bench.service_site import Agent, BenchError, Process, Site
from lab.bench.service_survey import ATTRIBUTES, SEED, Asked, random_reports
from lab.processes import cores
from ldpstream.producers.kafka_sink import KafkaSink
from ldpstream.producers.population import Population
from ldpstream.producers.produce import ENVELOPE_BYTES, produce_step
from ldpstream.producers.values import MarkovValues
from ldpstream.publishing.schedule import MARGIN_MS
from ldpstream.runtime.clock import now_ms
from ldpstream.runtime.settings import Settings
from ldpstream.surveys import seal

DAY_S = 86_400
PARTITIONS = 4
WARM_UP_RECORDS = 10_000  # records in each partition; enough to compile all loops
CLOSE_K, CLOSE_MECHANISMS = 1000, ("L-OSUE", "L-OLH")  # the attributes alternate between these mechanisms
CLOSE_BURSTS = 4  # envelopes of an attribute in a step
Seen = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of log: its attributes, bytes of an envelope (0 means one report) and number of records."""

    name: str
    attributes: tuple[int, ...]
    envelope_bytes: int
    records: int
    turns: int
    profiled: bool = True
    keyed: bool = False


@dataclass(frozen=True, slots=True)
class Sizes:
    kinds: tuple[Kind, ...]
    stock_records: int
    keys: int
    close_attributes: int
    close_steps: int
    close_step_s: int
    close_reports: int  # reports of an attribute in a step
    growth_records: int
    growth: tuple[tuple[int, int], ...]  # (workers, partitions) of each measurement
    sink_records: int
    sink_envelopes: int
    users: int


FULL = Sizes(
    kinds=(
        Kind("one report", (0, 1), 0, 1_500_000, 3),
        Kind("one report, key", (0, 1), 0, 1_500_000, 3, keyed=True),
        Kind("16 KiB, bits", (0, 1), ENVELOPE_BYTES, 80_000, 5),
        Kind("16 KiB, numbers", (2,), ENVELOPE_BYTES, 80_000, 5),
    ),
    stock_records=10_000,
    keys=1_000_000,
    close_attributes=20,
    close_steps=15,
    close_step_s=3,
    close_reports=1000,
    growth_records=600_000,
    growth=((1, 4), (1, 16), (1, 64), (2, 4), (2, 16), (2, 64), (4, 4), (4, 16), (4, 64)),
    sink_records=100_000,
    sink_envelopes=5_000,
    users=300_000,
)
QUICK = Sizes(
    kinds=(
        Kind("one report", (0, 1), 0, 4_000, 1),
        Kind("16 KiB, bits, key", (0, 1), ENVELOPE_BYTES, 200, 1, False, keyed=True),
    ),
    stock_records=200,
    keys=20_000,
    close_attributes=2,
    close_steps=2,
    close_step_s=1,
    close_reports=20,
    growth_records=4_000,
    growth=((1, 4),),
    sink_records=1_000,
    sink_envelopes=50,
    users=2_000,
)


def bench(settings: Settings, sizes: Sizes, seen: Seen = lambda _: None) -> ServiceBench:
    result = ServiceBench(cores())
    with TemporaryDirectory(prefix="ldpstream-bench-") as place:
        folder = Path(place)
        for kind in sizes.kinds:
            seen(f"{kind.name}: filling")
            with Site(settings, folder, DAY_S, ATTRIBUTES, PARTITIONS) as site:
                load = make_load(site.survey, kind.attributes, kind.envelope_bytes, kind.records)
                asyncio.run(fill(settings, site.survey.reports_topic, load, PARTITIONS, kind.keyed))
                result.counted.append(_counted(site, kind, load, seen))
                if kind.profiled:
                    result.phases.append(_phases(site, kind, load, folder / "phases.json", seen))
                if kind is sizes.kinds[0]:
                    result.stock = _stock(site, sizes.stock_records, result.counted[-1], seen)
                    seen("report keys of open steps")
                    result.remembered = measure_keys(site, sizes.keys)
                    result.recovery = _recovery(site, load, seen)  # its agent runs until the site is closed
        for workers, partitions in sizes.growth:
            seen(f"{workers} workers, {partitions} partitions")
            result.growth.append(_growth(settings, folder, workers, partitions, sizes.growth_records))
        seen("from a step's close to its histograms")
        result.closed = _closed(settings, folder, sizes)
        seen("producers")
        result.produced = _produced(settings, folder, sizes)
    return result


# ---- counting an existing log


def _counted(site: Site, kind: Kind, load: Load, seen: Seen) -> Counted:
    bare, agent = [], []
    for turn in range(kind.turns):
        seen(f"{kind.name}: bare consumer, run {turn + 1}")
        bare.append(Run(**site.reader("lab.bench.bare_consumer", load.records).answer()))
        seen(f"{kind.name}: agent, run {turn + 1}")
        agent.append(_count(site, site.agent(), load))
    ratio = median(a.per_s / b.per_s for a, b in zip(agent, bare, strict=True))
    costs = [run.cpu_s / run.records for runs in (bare, agent) for run in runs if run.cpu_s]
    cpu_ratio = None if len(costs) < 2 * kind.turns else sum(costs[: kind.turns]) / sum(costs[kind.turns :])
    return Counted(kind.name, load.bytes / load.records, load.reports / load.records, bare, agent, ratio, cpu_ratio)


def _count(site: Site, agent: Agent, load: Load) -> Run:
    site.until(agent.placed_s, [agent], "the agent reads")
    start = time.perf_counter(), agent.cpu_s, 0
    first = site.until(site.counted, [agent], "the first commit")
    if first < load.records / 2:
        start = time.perf_counter(), agent.cpu_s, first
    site.until(lambda: site.counted() == load.records, [agent], "all is counted")
    seconds, end_cpu = time.perf_counter() - start[0], agent.cpu_s
    cpu_s = None if start[1] is None or end_cpu is None else end_cpu - start[1]
    run = Run(load.records - start[2], seconds, cpu_s, agent.peak_mib)
    _check(site, load)
    agent.stop()
    site.forget()
    return run


def _check(site: Site, load: Load) -> None:
    if site.store.tables(range(1)) != load.counts:
        reports = sum(table.n for table in site.store.tables(range(1)).values())
        raise BenchError(f"the count tables differ from the reports sent: {reports:,} of {load.reports:,} reports")


def _phases(site: Site, kind: Kind, load: Load, out: Path, seen: Seen) -> Phases:
    seen(f"{kind.name}: where the time goes")
    _count(site, site.profiled_agent(out), load)
    told = json.loads(out.read_text())
    commits_ms = 1000 * np.array(told["commits_s"])
    per_million = {phase: 1e6 * seconds / told["records"] for phase, seconds in told["cpu_s"].items()}
    p50, p99 = np.percentile(commits_ms, [50, 99])
    return Phases(kind.name, told["records"], per_million, len(commits_ms), float(p50), float(p99))


def _stock(site: Site, records: int, counted: Counted, seen: Seen) -> Stock:
    seen("stock agent")
    told = site.reader("lab.bench.stock_agent", records).answer()
    per_s = told["reports"] / told["seconds"]
    ours = median(run.per_s for run in counted.agent) * counted.reports_per_record
    return Stock(told["reports"], per_s, ours / per_s)


def _recovery(site: Site, load: Load, seen: Seen) -> Recovery:
    seen("recovery")
    agent = site.agent()
    site.until(agent.placed_s, [agent], "the agent reads")
    agent.kill()
    killed, killed_unix, counted = time.perf_counter(), time.time(), site.counted()
    agent = site.agent()
    reading = min(site.until(agent.placed_s, [agent], "the next agent reads")) - killed_unix
    site.until(lambda: site.counted() > counted, [agent], "its first commit")
    first = time.perf_counter() - killed
    site.until(lambda: site.counted() == load.records, [agent], "all is counted")
    recovery = Recovery(load.records - counted, reading, first, time.perf_counter() - killed)
    _check(site, load)
    return recovery


# ---- growth


def _growth(settings: Settings, folder: Path, workers: int, partitions: int, records: int) -> Growth:
    with Site(settings, folder, DAY_S, ATTRIBUTES, partitions) as site:
        topic = site.survey.reports_topic
        agents = [site.agent() for _ in range(workers)]
        processes: list[Process] = [*agents]

        def stand_ready() -> bool:
            shares = [agent.partitions() for agent in agents]
            return min(shares) > 0 and sum(shares) == partitions

        site.until(stand_ready, processes, "all agents are ready")
        warm_up = make_load(site.survey, (0, 1), 0, WARM_UP_RECORDS * partitions)
        asyncio.run(fill(settings, topic, warm_up, partitions))  # only now, so that every agent loads its compiled loops
        site.until(lambda: site.counted() == warm_up.records, processes, "the warm-up is counted")
        load = make_load(site.survey, (0, 1), 0, records)
        began = time.perf_counter()
        fill_s = asyncio.run(fill(settings, topic, load, partitions))
        site.until(lambda: site.counted() == load.records + warm_up.records, processes, "all is counted")
        seconds = time.perf_counter() - began
        n_reports = sum(table.n for table in site.store.tables(range(1)).values())
        if n_reports != load.reports + warm_up.reports:
            raise BenchError(f"{n_reports:,} of {load.reports + warm_up.reports:,} reports counted")
        return Growth(workers, partitions, load.records, fill_s, seconds)


# ---- from a close to the histograms


def _closed(settings: Settings, folder: Path, sizes: Sizes) -> Closed:
    asked: tuple[Asked, ...] = tuple((f"a{i}", CLOSE_K, CLOSE_MECHANISMS[i % 2]) for i in range(sizes.close_attributes))
    with Site(settings, folder, sizes.close_step_s, asked, PARTITIONS) as site:
        survey, rng, steps = site.survey, np.random.default_rng(SEED), sizes.close_steps
        agent, estimator = site.agent(), site.estimator()
        answers = [random_reports(survey, attribute, sizes.close_reports, rng) for attribute in range(len(asked))]
        over = Event()

        def produce() -> None:
            with closing(KafkaSink(settings, survey.reports_topic)) as sink:
                for burst in itertools.cycle(range(CLOSE_BURSTS)):
                    step = survey.step_at(now_ms())
                    for attribute, given in enumerate(answers):
                        sink.send(seal(survey, attribute, 0, step, np.array_split(given, CLOSE_BURSTS)[burst]))
                    sink.flush()
                    if over.wait(sizes.close_step_s / CLOSE_BURSTS):
                        return

        def published(step: int) -> bool:
            progress = site.results.progress()
            return progress is not None and progress.next_step > step

        late: list[float] = []
        with ThreadPoolExecutor(1) as pool:
            producing = pool.submit(produce)
            try:
                site.until(partial(published, 0), [agent, estimator], "the first estimate")
                first = survey.step_at(now_ms()) + 1  # the first step that closes after all processes are warm
                for step in range(first, first + steps):
                    site.until(partial(published, step), [agent, estimator], "an estimate")
                    late.append(time.time() - survey.closes_ms(step) / 1000)
            finally:
                over.set()
            producing.result()
        p50, p99 = np.percentile(late, [50, 99])
        per_step, margin_s = sizes.close_reports * len(asked), MARGIN_MS / 1000
        return Closed(len(asked), CLOSE_K, steps, per_step, float(p50), float(p99), margin_s)


# ---- producers


def _produced(settings: Settings, folder: Path, sizes: Sizes) -> list[Produced]:
    with Site(settings, folder, DAY_S, ATTRIBUTES, PARTITIONS) as site:
        survey, topic = site.survey, site.survey.reports_topic
        produced = []
        with closing(KafkaSink(settings, topic)) as sink:
            for how, envelope_bytes, records in (
                ("one report a record", 0, sizes.sink_records),
                ("envelopes of 16 KiB", ENVELOPE_BYTES, sizes.sink_envelopes),
            ):
                load = make_load(survey, (0, 1), envelope_bytes, records)
                prepared = load.records / asyncio.run(fill(settings, topic, load, PARTITIONS))
                began = time.perf_counter()
                for _ in range(load.rounds):
                    for envelope in load.pool:
                        sink.send(envelope)
                sink.flush()
                seconds = time.perf_counter() - began
                produced.append(Produced(how, load.records, load.reports, seconds, load.records / seconds / prepared))
            population = Population(survey, MarkovValues(survey, sizes.users, 2, SEED), SEED)
            produce_step(survey, population, sink, 0)  # this first step draws the memos
            began = time.perf_counter()
            sent = produce_step(survey, population, sink, 1)
            seconds = time.perf_counter() - began
            reports = sum(len(pane.reports) for pane in sent)
            per_record = load.reports / load.records
            produced.append(
                Produced("simulated users, 16 KiB", 0, reports, seconds, reports / seconds / (prepared * per_record))
            )
        return produced
