"""A Prometheus that remembers a finished run of the embedded service, for the tests of the dashboards.

The run has a virtual clock, and takes seconds. The estimator's real metrics are recorded at every scrape of the virtual clock
and imported by promtool. The embedded service has no agent and no gateway, so their metrics are missing.
"""

import json
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import numpy as np
from prometheus_client import CollectorRegistry

from ldpstream.mechanisms.arguments import IntArray
from ldpstream.producers.population import Population
from ldpstream.producers.produce import produce_step
from ldpstream.producers.sinks import MemorySink
from ldpstream.producers.values import ValueSource
from ldpstream.publishing.process.prometheus_publisher import PrometheusPublisher
from ldpstream.runtime.process import start_child
from ldpstream.services.demo import EmbeddedService
from ldpstream.services.rehearse import rehearse
from ldpstream.surveys import Survey
from tests.deploy.manifests import ROOT
from tests.deploy.panels import SCRAPE_S, Ask, asker
from tests.deploy.tools import ToolError
from tests.services.rig import free_ports, wait_until

COHORT = '[cohort]\nname = "version"\nvalues = ["1.0", "1.1", "other"]\nleast = 1000\n'
START_S, STEP_S = 1_767_571_200, 60


def demo_with_cohorts(folder: Path) -> Survey:
    """Writes a rehearsal of the demo's survey with cohorts into a folder, and returns the survey."""
    text = (ROOT / "surveys" / "samples" / "demo.toml").read_text(encoding="utf-8")
    (folder / "cohorts.toml").write_text(text.replace("[[attribute]]", f"{COHORT}[[attribute]]", 1), encoding="utf-8")
    return rehearse(folder / "cohorts.toml", folder / "survey.toml", STEP_S, START_S)


class Jumping:
    """Simulated values. From step `at_step` on, every `every`-th person has the value `value` of the attribute `attribute`."""

    def __init__(self, source: ValueSource, attribute: int, value: int, every: int, at_step: int) -> None:
        self.n_people, self.n_steps = source.n_people, source.n_steps
        self._source, self._jump = source, (attribute, value, every, at_step)

    def at(self, step: int, attribute: int) -> tuple[IntArray, IntArray]:
        """See `ValueSource.at`."""
        people, values = self._source.at(step, attribute)
        jumping, value, every, at_step = self._jump
        if attribute == jumping and step >= at_step:
            values = np.where(people % every == 0, value, values)
        return people, values


def metrics(survey: Survey, source: ValueSource) -> Iterator[str]:
    """Runs the service, and yields the lines of its metrics at every scrape, in the format of OpenMetrics."""
    registry = CollectorRegistry()
    service = EmbeddedService(survey, [PrometheusPublisher(survey, registry)])
    population, sink = Population(survey, source, 1), MemorySink(service.append)
    for step in range(source.n_steps):
        service.now_ms = survey.opens_ms(step)
        produce_step(survey, population, sink, step)
        service.count()
        service.estimate()
        for at_ms in range(service.now_ms, survey.opens_ms(step + 1), SCRAPE_S * 1000):
            for family in registry.collect():
                for sample in family.samples:
                    labels = ",".join(f"{name}={json.dumps(v, ensure_ascii=False)}" for name, v in sample.labels.items())
                    yield f"{sample.name}{{{labels}}} {sample.value!r} {at_ms / 1000}"
    yield "# EOF"


@contextmanager
def remembered(lines: Iterator[str], folder: Path) -> Iterator[Ask]:
    """Imports the metrics into a Prometheus, and yields a function that asks it.

    Raises:
        ToolError: if Prometheus is missing.
    """
    if lacking := [tool for tool in ("prometheus", "promtool") if shutil.which(tool) is None]:
        raise ToolError(f"no {' and no '.join(lacking)} on PATH (deploy/local/setup_services.sh installs them)")
    text, data, configuration = folder / "metrics.txt", folder / "data", folder / "prometheus.yml"
    text.write_text("".join(f"{line}\n" for line in lines))
    configuration.write_text("{}")
    made = ["promtool", "tsdb", "create-blocks-from", "openmetrics", "--quiet", str(text), str(data)]
    subprocess.run(made, check=True, capture_output=True, text=True)
    [port] = free_ports(1)
    said = folder / "prometheus.log"
    flags = [f"--config.file={configuration}", f"--storage.tsdb.path={data}", f"--web.listen-address=127.0.0.1:{port}"]
    with said.open("wb") as out:
        server = start_child(["prometheus", *flags, "--storage.tsdb.retention.time=100y"], stdout=out, stderr=out)
    ask = asker(f"http://127.0.0.1:{port}")
    try:
        wait_until(partial(ask, "query", {"query": "vector(1)"}), said.read_text)
        yield ask
    finally:
        server.terminate()
        server.wait(60)
