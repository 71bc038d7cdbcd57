"""The whole pipeline with a real Kafka and a real Redis: separate processes turn people's values into histograms."""

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import redis

from ldpstream.agents.tally import Record, tally
from ldpstream.engines import PaneKey
from ldpstream.engines.kafka.redis_connection import connect
from ldpstream.engines.kafka.redis_results import RedisResults
from ldpstream.engines.kafka.redis_store import RedisCountStore
from ldpstream.mechanisms import CountTable
from ldpstream.producers.people_file import read_people
from ldpstream.producers.population import Population
from ldpstream.producers.produce import produce_step
from ldpstream.producers.sinks import MemorySink
from ldpstream.publishing.estimates.publication import Publication
from ldpstream.publishing.results import KeptResults
from ldpstream.runtime.clock import now_ms
from ldpstream.runtime.settings import Settings
from ldpstream.services.demo import EmbeddedService
from ldpstream.services.rehearse import rehearse
from ldpstream.surveys import Survey, load_survey
from tests.conftest import DATA

from .rig import STOPPED, Services, wait_until
from .test_publisher import all_published

ROOT = Path(__file__).parents[2]
VISITS = DATA / "ms_fimu_visits.csv"
MS_FIMU = ROOT / "surveys" / "samples" / "ms_fimu.toml"
REPORTS, STEPS = 190_345, 7  # numbers of reports and steps of the MS-FIMU visits
STEP_S, SEED = 3, 5
LEAST = 8000  # some cohorts are below it in a step, and others above
COHORT = f'[cohort]\nname = "version"\nvalues = ["1.0", "1.1", "other"]\nleast = {LEAST}\n'
LATENESS = 10  # in steps: time limit for sending the reports of one step


def visits(folder: Path) -> tuple[Path, int]:
    """A table of the MS-FIMU visits if their file exists, otherwise of simulated visits; and the number of visits."""
    path, rng = folder / "visits.csv", np.random.default_rng(1)
    if VISITS.exists():
        rows = [line.split(",") for line in VISITS.read_text().splitlines()[1:]]
        lines = [f"{person},{int(day) - 1},{visit}\n" for person, day, visit in rows]
        assert len(lines) == REPORTS
    else:
        labels = load_survey(MS_FIMU).attributes[0].labels
        lines = [
            f"p{person},{day},{labels[rng.integers(len(labels))]}\n"
            for person in range(60_000)
            for day in range(7)
            if rng.random() < 0.3
        ]
    path.write_text("person,step,visit\n" + "".join(lines))
    return path, len(lines)


def produced_again(survey: Survey, data: Path, steps: list[int]) -> EmbeddedService:
    """Repeats the reports of these steps, with the same values and seed, in an embedded service."""
    service = EmbeddedService(survey)
    population = Population(survey, read_people(data, survey), SEED)
    for turn, step in enumerate(steps):
        service.now_ms = survey.opens_ms(step)
        produce_step(survey, population, MemorySink(service.append), step, turn=turn)
    return service


def embedded(survey: Survey, data: Path, steps: list[int]) -> dict[str, Publication]:
    """Publications of the embedded service for the same reports, by key."""
    service = produced_again(survey, data, steps)
    service.count()
    service.now_ms = survey.closes_ms(steps[-1]) + survey.step_ms
    return {p.key: p for p in service.estimate()}


def direct_tally(survey: Survey, data: Path, steps: list[int]) -> dict[PaneKey, CountTable]:
    """Count tables of the same reports, tallied directly."""
    log = produced_again(survey, data, steps).log
    return tally(survey, list(map(Record, *log.read(0, 2**53)))).counts


def check_published(published: dict[str, Any], reference: dict[str, Publication], wanted: set[str]) -> None:
    """Checks that the wanted publications are complete, and equal those of the embedded service, bit for bit."""
    assert wanted <= set(published)
    for key in wanted:
        mine, other = published[key], reference[key]
        assert (mine["complete"], mine["reports"], mine["panes"]) == (True, other.reports, other.panes)
        assert mine["below_least"] == other.below_least
        assert mine["estimators"].keys() == other.estimators.keys()
        for name, result in other.estimators.items():
            assert mine["estimators"][name]["frequencies"] == result.frequencies
            assert mine["estimators"][name]["standard_errors"] == result.standard_errors
        assert {level: loss["eps_t"] for level, loss in mine["privacy"].items()} == {
            level: loss.eps_t for level, loss in other.privacy.items()
        }


def test_visits_become_histograms_without_loss(services: Services, kafka: str, redis_url: str, tmp_path: Path) -> None:
    data, n_reports = visits(tmp_path)
    survey_file = tmp_path / "visits.toml"
    text = MS_FIMU.read_text().replace('name = "ms-fimu"', f'name = "visits-{os.getpid()}-{time.time_ns()}"')
    text = text.replace("lateness_steps = 1", f"lateness_steps = {LATENESS}").replace(
        "[[attribute]]", f"{COHORT}[[attribute]]", 1
    )
    (tmp_path / "source.toml").write_text(text)
    survey = rehearse(tmp_path / "source.toml", survey_file, STEP_S, now_s=time.time())
    agents = [services.start("agent", survey_file) for _ in range(2)]
    sent = tmp_path / "sent.json"
    wait_until(lambda: now_ms() > survey.opens_ms(1), services.logs)  # as if the user had paused between the commands
    produce = services.start("produce", survey_file, "--data", data, "--seed", SEED, "--json", sent)
    services.finish(produce)

    # every acknowledged report is counted once: the tables equal a direct tally
    produced = json.loads(sent.read_text())["produced"]
    assert sum(row["reports"] for row in produced) == n_reports
    steps = sorted({row["step"] for row in produced})
    assert len(steps) == STEPS
    assert steps[0] >= 1
    store = RedisCountStore(survey, connect(Settings(redis=redis_url)))

    def counted() -> int:
        return sum(table.n for table in store.tables(range(steps[-1] + 1)).values())

    wait_until(lambda: counted() == n_reports, lambda: (counted(), services.logs()))
    tables = store.tables(range(steps[-1] + 1))
    assert tables == direct_tally(survey, data, steps)
    assert {key.cohort for key in tables} == {0, 1, 2}
    assert sum(table.n for table in tables.values()) == n_reports
    assert not any(store.rejected().values())

    # a stopping agent writes all its counts before it ends; a new agent counts the markers that end the last steps
    for agent in agents:
        agent.send_signal(signal.SIGTERM)
        services.finish(agent, STOPPED)
    services.start("agent", survey_file)
    services.estimate(survey_file, steps[-1])
    # after a restart, the estimator finds all steps published
    published = services.estimate(survey_file, steps[-1])

    # the histograms equal those of the embedded service, bit for bit
    reference = embedded(survey, data, steps)
    everybody = {f"visit_duration|{span}|{step}" for span in ("step", "window") for step in steps}
    wanted = everybody | {f"{key}|{version}" for key in everybody for version in ("1.0", "1.1", "other")}
    check_published(published, reference, wanted)
    assert {published[key]["below_least"] for key in wanted - everybody} == {False, True}
    assert sum(published[f"visit_duration|step|{step}"]["reports"] for step in steps) == n_reports

    # Redis and the compacted topic hold the same publications
    client = redis.Redis.from_url(redis_url)
    assert {p.key for p in KeptResults(survey, RedisResults(survey, client)).history()} >= wanted
    client.close()
    told = {p.key: json.loads(msgspec.json.encode(p)) for p in all_published(Settings(kafka=kafka), survey.estimates_topic)}
    assert wanted <= set(told)
    assert all(told[key]["estimators"] == published[key]["estimators"] for key in wanted)
