"""An in-memory log, an in-memory publisher and small count tables, for the tests of the schedule."""

from pathlib import Path

import numpy as np

from estimators.publishing.publication import Publication
from mechanisms import CountTable
from stores import PaneKey
from surveys import load_survey

MARGIN_MS = 500  # the default of `margin_ms`
SURVEY = load_survey(Path(__file__).parents[2] / "surveys" / "samples" / "demo.toml")
M = SURVEY.mechanisms[0][0]


class Log:
    """An in-memory log: the append times of each partition's records."""

    def __init__(self, *partitions: list[int], begins: dict[int, int] | None = None) -> None:
        self.times = list(partitions)
        self.begins = begins or dict.fromkeys(range(len(partitions)), 0)

    id = ""

    def log_id(self) -> str:
        return self.id

    def offsets_at(self, time_ms: int) -> dict[int, int]:
        return {
            p: self.begins[p] + next((i for i, t in enumerate(times) if t >= time_ms), len(times))
            for p, times in enumerate(self.times)
        }

    def earliest_ms(self) -> int | None:
        return min((t for times in self.times for t in times), default=None)


class Told:
    def __init__(self) -> None:
        self.publications: list[Publication] = []

    def publish(self, publications: list[Publication]) -> None:
        self.publications += publications


def pane(step: int, reports: int = 5) -> dict[PaneKey, CountTable]:
    return {PaneKey(0, 0, step): M.tabulate(np.zeros(reports, np.uint8))}


def keys(publications: list[Publication]) -> list[tuple[int, bool]]:
    return [(p.step, p.complete) for p in publications if p.attribute == "screen" and p.span == "step"]
