"""Compares docs/howto/usage.md with the code: its table of recipes, its program, and its numbers."""

import math
import re
from pathlib import Path
from typing import get_args

import numpy as np

from ldpstream import matrix_inversion, mechanism
from ldpstream.device import Activity, Device
from ldpstream.surveys import load_survey
from ldpstream.surveys.questions import Measure

ROOT = Path(__file__).parents[2]
SAMPLES = ROOT / "surveys" / "samples"
PLAIN = " ".join((ROOT / "docs" / "howto" / "usage.md").read_text().split())
SAMPLE, DAILY = load_survey(SAMPLES / "usage.toml"), load_survey(SAMPLES / "daily.toml")


def test_the_page_names_every_measure_and_every_question_of_the_sample() -> None:
    assert all(f"`{name}`" in PLAIN for name in [*get_args(Measure), *(attribute.name for attribute in SAMPLE.attributes)])
    assert (DAILY.step_seconds, DAILY.attributes[0].levels[0].every_steps) == (86_400, 7)


def test_the_program_of_the_page_runs(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "howto" / "usage.md").read_text()
    lines = re.findall(r"(?m)^ {8}(.*)\n", page[: page.index("3. Send the waiting")])
    text = "\n".join(lines).replace('"usage.toml"', repr(str(SAMPLES / "usage.toml")))
    for name in ("tool.device", "tool.activity"):
        text = text.replace(f'"{name}"', f'{str(tmp_path / name)!r}, consent="simulated"')
    text = text.replace("print(device.question())", "").replace("device.give_consent()", "")
    made: dict[str, object] = {}
    exec(text, made)  # the program of our own page
    device, activity = made["device"], made["activity"]
    assert isinstance(device, Device)
    assert isinstance(activity, Activity)
    assert len(device.waiting()) == 1
    in_a_page = re.findall(r"```js\n(.*?)```", (ROOT / "devices" / "typescript" / "README.md").read_text(), re.DOTALL)[1]
    assert in_a_page in re.sub("(?m)^ {4}", "", page)  # the device's own tests run it


def test_a_spaced_level_counts_days_of_use_and_not_people() -> None:
    """Half of the people come every day, half on 3 of 14 days. Errors are below 1.5 points in all but 1 of 10^5 seeds."""
    rng, n, m = np.random.default_rng(1), 400_000, mechanism("GRR", 2, eps=2.0)
    kind = np.arange(n) % 2
    days = rng.random((7, n)) < np.where(kind, 3 / 14, 1.0)
    for present, stated in ((days[rng.integers(0, 7, n), np.arange(n)], "82 to 18"), (days.any(axis=0), "55 to 45")):
        share = matrix_inversion(m, m.tabulate(m.report(kind[present], rng))).frequencies[0]
        assert stated in PLAIN
        assert abs(100 * share - int(stated.split()[0])) < 1.5


def test_the_errors_of_the_questions_are_the_codes() -> None:
    def half_width(question: str, n: int) -> float:
        (m,) = SAMPLE.mechanisms[SAMPLE.index(question)]
        return max(196 * math.sqrt(m.variance(f=f, n=n)) for f in (0.0, 0.5))

    assert [round(half_width("export", n)) for n in (3000, 500)] == [4, 9]
    assert "± 4 percentage points, if it is yes or no. With six questions each has 500 people, and ± 9 points" in PLAIN
    found = [half_width(attribute.name, 50_000 // 6) for attribute in SAMPLE.attributes]
    assert (round(min(found)), round(max(found))) == (2, 4)
    assert "With 50 000 the sample's six are known to ± 2 to 4 points." in PLAIN
