"""Simulates the share of reports that wrong device clocks cost, with the gateway's checks and the device's retry rule."""

from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import product

import numpy as np
from rich.table import Table

from ldpstream.gateway.http.bodies import Checks
from ldpstream.gateway.http.problems import FINAL, STATUS, Problem
from ldpstream.output.terminal import table
from ldpstream.surveys import Survey, parse_survey, seal

STEPS_S = (3600, 86_400)
OFFSETS_MIN = (-10, -1, 0, 1, 10)
LATENESS = (0, 1)
STEP = 10  # the step of the device's clock


@dataclass(frozen=True, slots=True)
class ClockRow:
    """Result for one kind of survey and one clock; `offset_min` is the device's clock minus the true time, in minutes."""

    step_s: int
    lateness_steps: int
    offset_min: float
    reports: int
    lost: float
    lost_once: float


def measure(reports: int, seed: int) -> list[ClockRow]:
    rng = np.random.default_rng(seed)
    return [_row(*case, reports, rng) for case in product(STEPS_S, LATENESS, OFFSETS_MIN)]


def _row(step_s: int, lateness_steps: int, offset_min: float, reports: int, rng: np.random.Generator) -> ClockRow:
    survey = _survey(step_s, lateness_steps)
    mechanism = survey.mechanisms[0][0]
    envelope = seal(survey, 0, 0, STEP, mechanism.simulate(np.zeros(1, np.int64), rng))
    lost = lost_once = 0
    for device_ms in rng.integers(survey.opens_ms(STEP), survey.opens_ms(STEP + 1), reports).tolist():
        true_ms = device_ms - round(60_000 * offset_min)
        attempts, counted = deliver(survey, envelope, true_ms)
        lost += not counted
        lost_once += not counted or attempts > 1
    return ClockRow(step_s, lateness_steps, offset_min, reports, lost / reports, lost_once / reports)


def deliver(survey: Survey, envelope: bytes, first_ms: int) -> tuple[int, bool]:
    now_ms, attempts = first_ms, 0
    while True:
        attempts += 1
        checks = Checks({survey.fingerprint: survey}, now_ms)
        checks.check([envelope])
        try:
            checks.require_countable(batch=False)
        except Problem as problem:
            if problem.retry_s is None or STATUS[problem.cause] == FINAL:
                return attempts, False
            now_ms += 1000 * problem.retry_s
        else:
            return attempts, True


def _survey(step_s: int, lateness_steps: int) -> Survey:
    level = {"name": "only", "mechanism": "GRR", "eps": 1.0}
    return parse_survey({
        "name": "clocks", "start": datetime(2026, 1, 5, tzinfo=UTC), "step_seconds": step_s, "window_steps": 1,
        "lateness_steps": lateness_steps, "collection": "smp",
        "attribute": [{"name": "answer", "values": ["no", "yes"], "level": [level]}],
    })  # fmt: skip


def clock_table(rows: list[ClockRow]) -> Table:
    shown = table("Reports and wrong clocks, % of all reports", "step", "lateness_steps", "clock, minutes", "lost",
                  "lost once", texts=1)  # fmt: skip
    for row in rows:
        shares = (f"{100 * share:.2f}" for share in (row.lost, row.lost_once))
        shown.add_row(f"{row.step_s // 3600} h", str(row.lateness_steps), f"{row.offset_min:+g}", *shares)
    return shown
