"""The schedules of an estimator with many surveys in one process, without Kafka.

python -m lab.bench.surveys_simulated_estimator SURVEYS
"""

import json
import sys
import time
from collections.abc import Collection
from contextlib import closing
from dataclasses import asdict

import numpy as np
from prometheus_client import REGISTRY

from lab.bench.service_survey import SEED, random_reports
from lab.bench.surveys_results import SimulatedEstimator
from lab.bench.surveys_site import ATTRIBUTES, PRESENT_STEP, SimulatedSurveys, ask, own_costs
from ldpstream.local.ports import free_ports
from ldpstream.publishing.api.app import create_surveys_api
from ldpstream.publishing.api.routes import Served
from ldpstream.publishing.page.server import PageServer
from ldpstream.publishing.prometheus_publisher import PrometheusPublisher
from ldpstream.publishing.redis_results import RedisResults
from ldpstream.publishing.schedule import Schedule
from ldpstream.publishing.survey_metrics import SurveyMetrics
from ldpstream.publishing.vitals import Vitals
from ldpstream.runtime.logs import start_log
from ldpstream.runtime.malloc import keep_freed_memory
from ldpstream.runtime.monitoring import serve_monitoring
from ldpstream.runtime.settings import Settings, load_settings
from ldpstream.stores import PaneKey
from ldpstream.stores.checkpoint import Checkpoint
from ldpstream.stores.redis_connection import Client, connect
from ldpstream.stores.redis_store import RedisCountStore
from ldpstream.surveys import Survey

REPORTS = 400  # reports of each attribute in a step
ROUNDS = 5  # turns of every survey without a due step
TURN_MS = 2000  # time between two turns of a survey, in a process with many surveys


class CountedLog:
    def __init__(self, survey: Survey) -> None:
        self._survey, self.end = survey, 0

    def log_id(self) -> str:
        return "log"

    def earliest_ms(self) -> int | None:
        return self._survey.opens_ms(PRESENT_STEP)

    def ends(self) -> dict[int, int]:
        return {0: self.end}

    def mark(self, partitions: Collection[int]) -> dict[int, int]:
        raise RuntimeError("every step's counts reach the step's close")


class Estimated:
    def __init__(self, survey: Survey, client: Client, settings: Settings, metrics: SurveyMetrics) -> None:
        self.survey, self.position = survey, CountedLog(survey)
        self.store, self.results = RedisCountStore(survey, settings, client=client), RedisResults(survey, client)
        registry = metrics.add()
        prometheus = PrometheusPublisher(survey, registry, brief=True)
        margin_ms = settings.margin_ms
        self._vitals = Vitals(survey, self.store, self.position, self.results, margin_ms, prometheus, registry)
        self._schedule = Schedule(survey, self.store, self.position, self.results, [prometheus], margin_ms)
        self.served = Served(survey, self.results, self.store.rejected)

    def count(self, step: int) -> None:
        rng, survey, before = np.random.default_rng(SEED + step), self.survey, self.position.end
        drawn = [random_reports(survey, a, REPORTS, rng) for a in range(ATTRIBUTES)]
        panes = {PaneKey(a, 0, step): survey.mechanisms[a][0].tabulate(reports) for a, reports in enumerate(drawn)}
        self.position.end += ATTRIBUTES * REPORTS
        written = Checkpoint(
            self.position.end, survey.closes_ms(step), panes, log_id="log", writer="agent",
            base_writer="agent" if before else "",
        )  # fmt: skip
        assert self.store.commit(0, (before, "log") if before else None, written)

    def turn(self, at_ms: int) -> int:
        self._vitals.look(at_ms)
        made = self._schedule.run(at_ms)
        self.results.balance()
        return len(made)

    def prepare(self) -> None:
        while self._schedule.prepare():
            pass

    def closed_ms(self, step: int) -> int:
        return self.survey.closes_ms(step) + 1000


def measure(n_surveys: int) -> SimulatedEstimator:
    settings = load_settings()
    metrics = SurveyMetrics()
    REGISTRY.register(metrics)
    with closing(connect(settings, timeout_s=10)) as client, SimulatedSurveys(client, n_surveys + 1) as simulated:
        _publish([Estimated(simulated.surveys[0], client, settings, SurveyMetrics())])  # loads the compiled loops
        before = own_costs(settings)
        all_estimated = [Estimated(survey, client, settings, metrics) for survey in simulated.surveys[1:]]
        prepare_ms, step_ms, round_s = _publish(all_estimated)
        cpu, at_ms = time.process_time(), all_estimated[0].closed_ms(PRESENT_STEP + 1)
        for number in range(1, ROUNDS + 1):
            for estimated in all_estimated:
                made = estimated.turn(at_ms + number * TURN_MS)
                assert not made
        turn_ms = 1000 * (time.process_time() - cpu) / n_surveys / ROUNDS
        [port] = free_ports(1)
        serve_monitoring("127.0.0.1", port, lambda: True)
        with closing(PageServer(create_surveys_api({e.survey.name: e.served for e in all_estimated}), "127.0.0.1", 0)) as page:
            answers = ask(port, "/metrics"), ask(page.port, "/"), ask(page.port, "/api/v1/surveys")
        mib = (own_costs(settings).resident_mib - before.resident_mib) / n_surveys
    return SimulatedEstimator(n_surveys, mib, turn_ms, prepare_ms, step_ms, round_s, *answers)


def _publish(all_estimated: list[Estimated]) -> tuple[float, float, float]:
    prepare_ms = step_ms = round_s = 0.0
    for step in (PRESENT_STEP, PRESENT_STEP + 1):
        cpu = time.process_time()
        for estimated in all_estimated:
            estimated.prepare()
        prepare_ms = 1000 * (time.process_time() - cpu) / len(all_estimated)
        for estimated in all_estimated:
            estimated.count(step)
        began, cpu = time.perf_counter(), time.process_time()
        for estimated in all_estimated:
            made = estimated.turn(estimated.closed_ms(step))
            assert made
        round_s, step_ms = time.perf_counter() - began, 1000 * (time.process_time() - cpu) / len(all_estimated)
    return prepare_ms, step_ms, round_s


if __name__ == "__main__":
    start_log("warning")  # to standard error
    keep_freed_memory()
    sys.stdout.write(json.dumps(asdict(measure(int(sys.argv[1])))))
