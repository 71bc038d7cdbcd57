"""The export of a year of estimates from Kafka: size and time."""

import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from secrets import token_hex
from tempfile import TemporaryDirectory

import msgspec
import numpy as np
from kafka import KafkaAdminClient
from rich.table import Table

from ldpstream.engines.kafka.topics import ensure_topics
from ldpstream.output.terminal import table
from ldpstream.publishing.estimates.conclusions import conclude
from ldpstream.publishing.estimates.frequencies import Frequencies
from ldpstream.publishing.estimates.publication import Publication
from ldpstream.publishing.history.export import export
from ldpstream.runtime.settings import Settings
from ldpstream.services.kafka_publisher import KafkaPublisher
from ldpstream.surveys import Survey, parse_survey

ATTRIBUTES, VALUES, DAY = 4, 20, 24
BATCH = 200  # publications in one transaction


@dataclass(frozen=True, slots=True)
class ExportRow:
    publications: int
    rows: int
    megabytes: float
    seconds: float
    again_s: float


def bench(settings: Settings, steps: int, seed: int, progress: Callable[[str], None]) -> ExportRow:
    survey = parse_survey({
        "name": f"bench-export-{token_hex(4)}", "start": datetime(2026, 1, 1, tzinfo=UTC), "step_seconds": 3600,
        "window_steps": DAY, "lateness_steps": 1, "collection": "smp",
        "attribute": [
            {"name": f"a{a}", "size": VALUES, "level": [{"name": "all", "mechanism": "L-OSUE", "eps_inf": 2.0, "eps_1": 1.0}]}
            for a in range(ATTRIBUTES)
        ],
    })  # fmt: skip
    ensure_topics(settings, survey, "estimator")
    try:
        progress("estimating a day")
        day = _day(survey, seed)
        with closing(KafkaPublisher(survey, settings)) as publisher:
            publisher.take_over(0, lambda: True)
            progress(f"publishing {steps} steps")
            for batch in _batches(day, 0, steps):
                publisher.publish(batch)
            with TemporaryDirectory() as folder:
                _, first_s = _timed(survey, settings, Path(folder), progress)
                for batch in _batches(day, steps, steps + 1):
                    publisher.publish(batch)
                again, again_s = _timed(survey, settings, Path(folder), progress)
                size = sum(f.stat().st_size for f in Path(folder).rglob("*.parquet"))
    finally:
        with KafkaAdminClient(**settings.kafka_options()) as admin:
            admin.delete_topics([survey.estimates_topic, survey.reports_topic])
    rows = {p.key: VALUES * len(p.estimators) for p in day}
    n_rows = round(sum(rows.values()) * (steps + 1) / DAY)
    return ExportRow(again, n_rows, size / 1e6, first_s, again_s)


def _day(survey: Survey, seed: int) -> list[Publication]:
    rng, [[m], *_] = np.random.default_rng(seed), survey.mechanisms
    shares = np.arange(VALUES, 0, -1) / np.arange(VALUES + 1).sum()
    tables = [m.tabulate(m.simulate(rng.choice(VALUES, 5000, p=shares), rng)) for _ in range(DAY)]
    return [
        conclude(survey, a, step, span, [[t] for t in (tables if span == "window" else tables[step : step + 1])], True)
        for step in range(DAY)
        for a in range(ATTRIBUTES)
        for span in ("step", "window")
    ]


def _batches(day: list[Publication], first: int, end: int) -> Iterator[list[Publication]]:
    of_step, rng = len(day) // DAY, np.random.default_rng(first)
    made = (
        msgspec.structs.replace(p, step=step, estimators={name: _noisy(f, rng) for name, f in p.estimators.items()})
        for step in range(first, end)
        for p in day[step % DAY * of_step : (step % DAY + 1) * of_step]
    )
    while batch := list(islice(made, BATCH)):
        yield batch


def _noisy(found: Frequencies, rng: np.random.Generator) -> Frequencies:
    noise = rng.normal(1, 0.1, (2, VALUES))
    estimate = found.estimate()
    numbers = noise * (estimate.frequencies, estimate.standard_errors)
    shares, errors = ([None if np.isnan(x) else x for x in row] for row in numbers.tolist())
    return msgspec.structs.replace(found, frequencies=shares, standard_errors=errors)


def _timed(survey: Survey, settings: Settings, folder: Path, progress: Callable[[str], None]) -> tuple[int, float]:
    progress("exporting")
    start = time.perf_counter()
    done = export(survey, settings, folder)
    return done.publications, time.perf_counter() - start


def export_table(r: ExportRow) -> Table:
    title = f"Hourly estimates, steps and windows, of {ATTRIBUTES} attributes with {VALUES} values"
    shown = table(title, "estimates", "rows", "MB", "s", "again, with one more step, s", texts=0)
    shown.add_row(f"{r.publications:,}", f"{r.rows:,}", f"{r.megabytes:.1f}", f"{r.seconds:.1f}", f"{r.again_s:.1f}")
    return shown
