"""Reads the table of docs/reference/metrics.md."""

import re
from dataclasses import dataclass
from pathlib import Path

TEXT = (Path(__file__).parents[2] / "docs" / "reference" / "metrics.md").read_text()


@dataclass(frozen=True)
class Metric:
    """A metric's type and labels, without the labels that Prometheus adds."""

    kind: str
    labels: frozenset[str]


def rows() -> list[list[str]]:
    """Returns the cells of the rows of the table of metrics."""
    lines = [line.strip().strip("|").split(" | ") for line in TEXT.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in cells] for cells in lines if cells[0].strip().startswith("`")]


def _metrics() -> dict[str, dict[str, Metric]]:
    made: dict[str, dict[str, Metric]] = {}
    for name, kind, labels, process, *_ in rows():
        metric = Metric(kind, frozenset(re.findall(r"`(\w+)`", labels)))
        for one in process.split(", "):
            made.setdefault(one, {})[name.strip("`")] = metric
    return made


METRICS = _metrics()  # process -> metric's name -> metric
