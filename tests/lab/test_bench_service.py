"""Parts of the service's benchmark that run without Kafka and Redis."""

from pathlib import Path

import pytest
from rich.console import Console

from lab.bench.service_load import make_load
from lab.bench.service_results import Closed, Counted, Growth, Phases, Produced, Recovery, Remembered, Run, ServiceBench, Stock
from lab.bench.service_survey import ATTRIBUTES, write_survey
from lab.bench.service_tables import PHASES, service_notes, service_tables
from ldpstream.agents import Record, tally

RESULT = ServiceBench(
    2,
    [Counted("bits", 74.5, 1.0, [Run(1000, 0.5, 0.25)], [Run(1000, 2.0, None, 200.0)], 0.25, None)],
    Stock(100, 1000.0, 61.0),
    [Phases("bits", 1000, dict.fromkeys(PHASES, 0.5), 60, 0.75, 12.0)],
    Closed(20, 1000, 15, 400, 0.9, 1.7, 0.5),
    Recovery(1_000_000, 6.0, 6.5, 14.25),
    Remembered(1_000_000, 8.1, 24.5, 9.0, 62, 1.5, 3.25, 0.05, 0.125),
    [Growth(1, 4, 600, 0.5, 3.0), Growth(2, 16, 600, 0.5, 2.0)],
    [Produced("users", 100, 5000, 0.5, 0.75)],
)


def shown(result: ServiceBench) -> str:
    """The command's output."""
    console = Console(width=200)
    with console.capture() as captured:
        for part in (*service_tables(result), *service_notes(result)):
            console.print(part)
    return captured.get()


def test_results_are_shown_beside_their_targets() -> None:
    text = " ".join(shown(RESULT).replace("│", " ").split())
    for wanted in (
        "ratio, wanted 0.8 0.25", "bare consumer 2 k 0 2 k 250", "agent 500 0 500 – 200", "bits 0.50 0.50 0.50",
        "61 × that, target 50 met", "without it p99 1.20 s, target 1 s missed", "counted all after 14.2 s", "2 16 300 1.50",
        "users 200 10 k 0.75", "60 commits of a partition, p50 0.8 ms, p99 12.0 ms.", "2 cores",
        "8.1 bytes a key in the agent (at most 24.5), 9 in Redis", "62, p50 1.5 ms, p99 3.2 ms.", "counts after 0.12 s",
    ):  # fmt: skip
        assert wanted in text, (wanted, text)


@pytest.mark.parametrize("envelope_bytes", [0, 2000])
@pytest.mark.parametrize("attributes", [(0, 1), (2,)])
def test_a_load_has_the_counts_that_it_claims(tmp_path: Path, envelope_bytes: int, attributes: tuple[int, ...]) -> None:
    survey = write_survey(tmp_path / "survey.toml", "load", 86_400, ATTRIBUTES)
    load = make_load(survey, attributes, envelope_bytes, 30_000 if not envelope_bytes else 100)
    log = load.pool * load.rounds
    added = tally(survey, [Record(i, survey.start_ms, envelope) for i, envelope in enumerate(log)])
    assert not added.rejected
    assert (load.counts, load.reports) == (added.counts, added.reports)
    assert (load.records, load.bytes) == (len(log), sum(map(len, log)))
    assert {key.attribute for key in load.counts} == set(attributes)
    assert load.reports / load.records == 1 if not envelope_bytes else load.reports > 10 * load.records
