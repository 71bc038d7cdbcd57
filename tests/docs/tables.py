"""Reads the tables of docs/operate.md."""

import re
from dataclasses import dataclass
from pathlib import Path

TEXT = (Path(__file__).parents[2] / "docs" / "operate.md").read_text()


@dataclass(frozen=True)
class Metric:
    """A metric's type and labels, without the labels that Prometheus adds."""

    kind: str
    labels: frozenset[str]


def rows(heading: str) -> list[list[str]]:
    """Returns the cells of all table rows between this heading and the next heading of the same rank."""
    level = len(heading) - len(heading.lstrip("#"))
    body = TEXT[TEXT.index(f"\n{heading}\n") + len(heading) + 2 :]
    body = re.split(rf"(?m)^#{{1,{level}}} ", body)[0]
    lines = [line.strip().strip("|").split(" | ") for line in body.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in cells] for cells in lines if cells[0].strip().startswith("`")]


def _metrics() -> dict[str, dict[str, Metric]]:
    made: dict[str, dict[str, Metric]] = {}
    for name, kind, labels, process, *_ in rows("## Metrics"):
        metric = Metric(kind, frozenset(re.findall(r"`(\w+)`", labels)))
        for one in process.split(", "):
            made.setdefault(one, {})[name.strip("`")] = metric
    return made


METRICS = _metrics()  # process -> metric's name -> metric
