"""Measures whether the memory of an agent, an estimator and a gateway grows over a long run, in MiB an hour.

nice python -m lab.bench.soak MINUTES STEP_SECONDS
"""

import contextlib
import http.client
import math
import os
import secrets
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from numpy.typing import NDArray

from deploy.local.ports import free_ports
from lab.bench.gateway_load import TOKEN
from lab.bench.process_costs import ProcessCosts
from lab.bench.service_site import Process, Site
from lab.bench.service_survey import SEED, random_reports
from lab.bench.surveys_site import attributes
from ldpstream.runtime.clock import now_ms
from ldpstream.runtime.settings import Settings
from ldpstream.surveys import seal

PARTITIONS = 4
REPORTS_A_SECOND = 20
SAMPLE_S = 5.0
ROLES = ("agent", "estimator", "gateway")


def slope(hours: NDArray[np.float64], mib: NDArray[np.float64]) -> tuple[float, float]:
    """The slope of a least-squares line, in MiB an hour, and its standard error for autoregressive residuals of order one.

    >>> hours = np.linspace(0, 1, 500)
    >>> found, error = slope(hours, 100 + 7 * hours + np.random.default_rng(1).normal(size=500))
    >>> abs(found - 7) < 4 * error < 1
    True
    """
    x = hours - hours.mean()
    found = float(x @ mib / (x @ x))
    residuals = mib - mib.mean() - found * x
    variance = float(residuals @ residuals) / max(len(x) - 2, 1)
    if variance < 1e-20:  # only rounding errors
        return found, 0.0
    dependence = min(max(float(residuals[1:] @ residuals[:-1] / (residuals @ residuals)), 0.0), 0.99)
    return found, math.sqrt(variance / (x @ x) * (1 + dependence) / (1 - dependence))


def soak(settings: Settings, minutes: float, step_seconds: int) -> None:
    with (
        TemporaryDirectory(prefix="ldpstream-bench-") as place,
        Site(settings, Path(place), step_seconds, attributes(0), PARTITIONS) as site,
    ):
        [port] = free_ports(1)
        gateway = {"LDPSTREAM_GATEWAY_HOST": "127.0.0.1", "LDPSTREAM_GATEWAY_PORT": str(port)}
        (tokens := Path(place) / "tokens").write_text(f"collector {TOKEN}\n")
        gateway["LDPSTREAM_GATEWAY_TOKENS_FILE"] = str(tokens)
        processes = [site.agent(), site.estimator(), site.gateway(**gateway)]
        _tell(f"{minutes:g} minutes, steps of {step_seconds} s, load average {os.getloadavg()[0]:.1f}")
        samples, statuses = _run(site, processes, port, minutes)
        published = site.results.progress()
    _tell(f"published up to step {0 if published is None else published.next_step}; answers of the gateway: {statuses}")
    half = samples[len(samples) // 2 :]
    _tell(f"load average {os.getloadavg()[0]:.1f}; slopes of the last {(half[-1, 0] - half[0, 0]) * 60:.0f} minutes:")
    for i, role in enumerate(ROLES, start=1):
        found, error = slope(half[:, 0], half[:, i])
        _tell(f"{role}: {samples[0, i]:.1f} to {samples[-1, i]:.1f} MiB, {found:+.2f} ± {error:.2f} MiB an hour")


def _run(site: Site, processes: list[Process], port: int, minutes: float) -> tuple[NDArray[np.float64], dict[int, int]]:
    rng, survey = np.random.default_rng(SEED), site.survey
    pools = [random_reports(survey, a, 500, rng) for a in range(len(survey.attributes))]
    began, statuses, rows = time.monotonic(), dict[int, int](), list[list[float]]()
    due, told = began, began
    while (now_s := time.monotonic()) < began + 60 * minutes:
        step = survey.step_at(now_ms())
        for number in range(REPORTS_A_SECOND):
            a = number % len(pools)
            row = rng.integers(500)
            status = _post(port, seal(survey, a, 0, step, pools[a][row : row + 1]))
            statuses[status] = statuses.get(status, 0) + 1
        if now_s >= due:
            due += SAMPLE_S
            for process in processes:
                process.check()
            costs = [ProcessCosts.of([process.pid], site.settings).resident_mib for process in processes]
            rows.append([(now_s - began) / 3600, *costs])
        if now_s >= told:
            told += 60
            shown = ", ".join(f"{role} {mib:.1f}" for role, mib in zip(ROLES, rows[-1][1:]))
            _tell(f"{(now_s - began) / 60:5.1f} min: {shown} MiB; load {os.getloadavg()[0]:.1f}")
        time.sleep(max(0.0, now_s + 1 - time.monotonic()))
    return np.array(rows), statuses


def _post(port: int, envelope: bytes) -> int:
    headers = {"Content-Type": "application/vnd.ldpstream.envelope", "Idempotency-Key": secrets.token_urlsafe(16)}
    headers["Authorization"] = f"Bearer {TOKEN}"
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=10)) as connection:
        try:
            connection.request("POST", "/v1/reports", envelope, headers)
            return connection.getresponse().status
        except (OSError, http.client.HTTPException):
            return 0


def _tell(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    soak(Settings(), float(sys.argv[1]), int(sys.argv[2]))
