"""Small surveys and a clock for the tests of the wallet."""

from pathlib import Path
from typing import Any

import pytest

from ldpstream.surveys import Survey
from tests.small_survey import START, small_survey

ROOT = Path(__file__).parents[3]
START_MS = int(START.timestamp() * 1000)
ONCE = {"mechanism": "GRR", "eps": 1.0}
TWICE = ONCE | {"lifetime_reports": 2}
MEMO = {"mechanism": "L-GRR", "eps_inf": 2.0, "eps_1": 1.0}


def survey(
    name: str,
    *levels: dict[str, Any],
    step_seconds: int = 60,
    collection: str = "smp",
    n_attributes: int = 1,
    ends: int | None = None,
) -> Survey:
    """A survey of attributes q0, q1, … with five values each, and with levels a, b, …."""
    named = [{"name": "abcd"[j], **level} for j, level in enumerate(levels)]
    return small_survey(
        *({"name": f"q{i}", "size": 5, "level": named} for i in range(n_attributes)),
        name=name, step_seconds=step_seconds, window_steps=10, lateness_steps=1, collection=collection, ends=ends,
    )  # fmt: skip


class Clock:
    """The time in seconds since the start of the surveys."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.seconds = 0
        patch.setattr("time.time_ns", lambda: (START_MS + 1000 * self.seconds) * 1_000_000)
