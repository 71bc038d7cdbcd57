import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from ldpstream.mechanisms import Reports
from ldpstream.surveys import Survey, load_survey

SEED = 20260601

Asked = tuple[str, int, str]  # name, k and mechanism of an attribute
ATTRIBUTES: tuple[Asked, ...] = (("route", 300, "L-OSUE"), ("cell", 600, "L-OSUE"), ("app", 1000, "L-GRR"))


def write_survey(file: Path, name: str, step_seconds: int, attributes: Sequence[Asked], start_s: float | None = None) -> Survey:
    """Writes a survey to a file. Step 0 begins at `start_s`, in seconds since 1970, by default now."""
    start = datetime.fromtimestamp((time.time() if start_s is None else start_s) // 1, UTC)
    lines = [f'name = "{name}"', f"start = {start:%Y-%m-%dT%H:%M:%SZ}", f"step_seconds = {step_seconds}"]
    lines += ["window_steps = 3", "lateness_steps = 0", 'collection = "spl"']
    share = len(attributes)  # `spl` (split) gives each attribute 1/share of the budget
    for attribute, k, mechanism in attributes:
        lines += ["[[attribute]]", f'name = "{attribute}"', f"size = {k}"]
        lines += [f'level = [{{ name = "all", mechanism = "{mechanism}", eps_inf = {2.0 * share}, eps_1 = {1.0 * share} }}]']
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return load_survey(file)


def random_reports(survey: Survey, attribute: int, n: int, rng: np.random.Generator) -> Reports:
    m = survey.mechanisms[attribute][0]
    return m.simulate(rng.integers(0, m.k, n), rng)
