import time
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from deploy.local.ports import free_ports
from lab.bench.process_costs import ProcessCosts
from lab.bench.service_site import Agent, BaseSite, Process, random_name
from lab.bench.service_survey import SEED, Asked, write_survey
from ldpstream.engines.kafka.redis_results import RedisResults
from ldpstream.engines.kafka.redis_store import RedisCountStore
from ldpstream.publishing.results import KeptResults
from ldpstream.runtime.settings import Settings
from ldpstream.surveys import Survey

PRESENT_STEP = 1000  # the losses of the first steps take less time
MECHANISMS = ("L-GRR", "L-OUE", "L-OLH", "L-OSUE")
ATTRIBUTES = len(MECHANISMS)
SMALLEST_K, LARGEST_K = 8, 100


def attributes(survey: int) -> tuple[Asked, ...]:
    sizes = np.random.default_rng([SEED, survey]).integers(SMALLEST_K, LARGEST_K, ATTRIBUTES, endpoint=True)
    return tuple((f"a{i}", int(k), mechanism) for i, (k, mechanism) in enumerate(zip(sizes, MECHANISMS, strict=True)))


class Estimator(Process):
    def __init__(self, module: str, arguments: list[str], environment: dict[str, str], log: Path) -> None:
        page_port, self.port = free_ports(2)
        hosts = {f"LDPSTREAM_{name}_HOST": "127.0.0.1" for name in ("PAGE", "METRICS")}
        ports = {"LDPSTREAM_PAGE_PORT": str(page_port), "LDPSTREAM_METRICS_PORT": str(self.port)}
        super().__init__(module, arguments, environment | hosts | ports, log)


class SurveysSite(BaseSite):
    patience_s = 900.0

    def __init__(
        self, settings: Settings, folder: Path, n: int, step_seconds: int, partitions: int, step: int, apart: bool
    ) -> None:
        name, start_s = random_name(), time.time() - step * step_seconds
        self.files = folder / name
        self.files.mkdir()
        files = [self.files / f"{name}-{i}.toml" for i in range(n)]
        surveys = [write_survey(file, file.stem, step_seconds, attributes(i), start_s) for i, file in enumerate(files)]
        super().__init__(settings, folder, name, surveys, partitions)
        self._served = [str(file) for file in files] if apart else [str(self.files)]
        self._group = {"LDPSTREAM_GROUP": name}
        self.stores = [RedisCountStore(survey, self.redis) for survey in surveys]
        self.results = [KeptResults(survey, RedisResults(survey, self.redis)) for survey in surveys]
        self.agents: list[Agent] = []
        self.estimators: list[Estimator] = []

    def start_agents(self) -> None:
        self.agents = [self.started(Agent, "ldpstream", "agent", served, **self._group) for served in self._served]

    def start_estimators(self) -> None:
        self.estimators = [self.started(Estimator, "ldpstream", "estimate", served) for served in self._served]

    def uncounted(self, records: int) -> int:
        return sum(records - sum(store.positions().values()) for store in self.stores)

    def next_steps(self) -> list[int]:
        return [0 if (found := results.progress()) is None else found.next_step for results in self.results]

    def costs(self, processes: Iterable[Process]) -> ProcessCosts:
        return ProcessCosts.of([process.pid for process in processes], self.settings)

    @property
    def survey(self) -> Survey:
        return self.surveys[0]


def cpu_s(processes: Iterable[Process]) -> float:
    return sum(process.cpu_s or 0.0 for process in processes)
