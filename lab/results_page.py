"""Writes `docs/evidence/results.md` and its pictures from the files that the project's commands write with `--json`.

    python -m lab.results_page FOLDER

If a file is missing, the page keeps its present section.
"""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import msgspec
from rich.table import Table
from rich.text import Text

from lab.bench import coverage, stream_memos, stream_tables, streams
from lab.bench.accuracy import compare
from lab.bench.accuracy import tables as accuracy_tables
from lab.bench.advice import Compared
from lab.bench.advice_tables import GAIN_NOTE, gain_tables
from lab.bench.estimators import Timing, timing_table
from lab.bench.mechanisms import Bench
from lab.bench.mechanisms_tables import bench_notes, bench_tables
from lab.bench.service_results import ServiceBench
from lab.bench.service_tables import service_notes, service_tables
from lab.panels import draw_panels
from lab.papers.reproduction import Outcome, Row
from lab.papers.reproduction_tables import markdown, outcome, summary

DOCS = Path(__file__).resolve().parents[1] / "docs" / "evidence"
BESIDE = "results"  # folder for pictures and for tables too long for the page
ABOUT = """# Results

Written by `python -m lab.results_page` from runs of the commands named below. Run these commands to reproduce every
number. Speeds depend on the machine, so compare them only with one another. Errors found in papers and libraries are in
[errata.md](errata.md).
"""
PAPERS = {
    "ibu": "Arcolezi, Cerna, Palamidessi 2023: IBU or matrix inversion",
    "ldp3": "LDP³: post-processing",
    "free-will": "Free-will privacy: GIBU",
    "allomfree": "Arcolezi, Couchot, Al Bouna, Xiao 2022: ALLOMFREE",
}


def rows_of(table: Table) -> str:
    columns = [[_plain(cell) for cell in column.cells] for column in table.columns]
    lines = ["| " + " | ".join(_plain(column.header) for column in table.columns) + " |", "|---" * len(columns) + "|"]
    lines += ["| " + " | ".join(cells) + " |" for cells in zip(*columns, strict=True)]
    title = f"**{_plain(table.title)}**\n\n" if table.title else ""
    return title + "\n".join(lines) + "\n"


def _plain(cell: Any) -> str:
    return Text.from_markup(str(cell)).plain.replace("|", "\\|").replace("\n", " ")


# ---- sections


def reproduced(written: Any) -> str:
    targets: list[tuple[str, str, Outcome]] = [(one["name"], one["title"], outcome(one)) for one in written]
    lines = [
        "## The papers, reproduced",
        "",
        "`python -m lab.papers --data DIR` (`--list` shows the names, `--quick` computes small parts only). *differs* is our",
        "value minus the paper's; ± is the standard deviation of this difference by chance, over the paper's runs and ours. A",
        "value agrees if *differs* is at most three times ± plus the rounding error of the printed value. *best* is our best",
        "method for the same purpose; *gain* is how many times this method is better than the paper's. Notes explain most",
        "values that do not agree; most often the data were not available and were generated.",
        "",
        "| | values | agree | median gain | |",
        "|---|---|---|---|---|",
    ]
    for name, title, found in targets:
        compared = [row.within for row in found.rows if row.published is not None]
        agree = f"{sum(map(bool, compared))} of {len(compared)}" if compared else "no numbers printed"
        lines.append(f"| `{name}` | {len(found.rows)} | {agree} | {_gain(found.rows)} | {title} |")
    lines += ["", _total([row for _, _, found in targets for row in found.rows if row.published is not None]), ""]
    for prefix, paper in PAPERS.items():
        lines += [f"## {paper}", ""]
        for name, title, found in targets:
            if name.startswith(f"{prefix}-"):
                lines.append(markdown(name, title, found, f"{BESIDE}/{name}.png" if found.panels else ""))
    return "\n".join(lines) + "\n"


def _total(rows: list[Row]) -> str:
    others = [row for row in rows if not row.within]
    generated = sum("generated" in row.note for row in others)
    return (
        f"{len(rows) - len(others)} of {len(rows)} values agree. Of the {len(others)} others, {generated} rest on data that we"
        " generated, because the paper's data were not available."
    )


def _gain(rows: Any) -> str:
    gains = [row.gain for row in rows if isinstance(row, Row) and row.gain is not None]
    return f"×{median(gains):.3g}" if gains else "–"


def mechanisms(written: Any) -> str:
    result = msgspec.convert(written, Bench)
    parts = ["## Reports: speed and memory\n\n`python -m lab.bench mechanisms`\n", *map(rows_of, bench_tables(result))]
    return "\n".join([*parts, *(f"{note}\n" for note in bench_notes(result))])


def estimators(written: Any) -> str:
    return "## Estimators: speed\n\n`python -m lab.bench estimators`\n\n" + rows_of(
        timing_table(msgspec.convert(written, list[Timing]))
    )


def accurate(written: Any) -> str:
    result = msgspec.convert(written, compare.Result)
    shown = "\n".join(map(rows_of, accuracy_tables.tables(result)))
    return (
        f"## Estimators: accuracy\n\n`python -m lab.bench accuracy --data DIR`: {result.runs} runs of each of"
        f" {len(result.views['all'])} cells ([every cell]({BESIDE}/accuracy.csv)). {accuracy_tables.NOTE}\n\n{shown}"
    )


def covered(written: Any) -> str:
    tables = "\n".join(map(rows_of, coverage.tables(msgspec.convert(written, coverage.Result))))
    return f"## Intervals of 95 %\n\n`python -m lab.bench coverage --data DIR`\n\n{tables}"


def advised(written: Any) -> str:
    tables = "\n".join(map(rows_of, gain_tables(msgspec.convert(written, list[Compared]))))
    return f"## Advice\n\n`python -m lab.bench advice --data DIR`. {GAIN_NOTE}\n\n{tables}"


def streamed(written: Any) -> str:
    result = msgspec.convert(written["streams"], streams.Result)
    memos = msgspec.convert(written["memos"], list[stream_memos.Row])
    tables = "\n".join(map(rows_of, (*stream_tables.stream_tables(result), stream_tables.memo_table(memos))))
    notes = "".join(f"\n{note}\n" for note in stream_tables.stream_notes(result))
    return f"## Values that change\n\n`python -m lab.bench streams --data DIR`\n\n{tables}{notes}"


def service(written: Any) -> str:
    result = msgspec.convert(written, ServiceBench)
    parts = ["## The service, over Kafka and Redis\n\n`python -m lab.bench service`\n", *map(rows_of, service_tables(result))]
    return "\n".join([*parts, *(f"{_plain(note)}\n" for note in service_notes(result))])


SECTIONS: dict[str, tuple[str, Callable[[Any], str]]] = {  # command -> its first heading, and the section's writer
    "reproduce": ("## The papers, reproduced", reproduced),
    "mechanisms": ("## Reports: speed and memory", mechanisms),
    "estimators": ("## Estimators: speed", estimators),
    "accuracy": ("## Estimators: accuracy", accurate),
    "coverage": ("## Intervals of 95 %", covered),
    "advice": ("## Advice", advised),
    "streams": ("## Values that change", streamed),
    "service": ("## The service, over Kafka and Redis", service),
}


def page(found: dict[str, Any], before: str) -> str:
    kept = sections_of(before)
    made = [write(found[name]) if name in found else kept.get(name, "") for name, (_, write) in SECTIONS.items()]
    return "\n".join([ABOUT, *(f"{section.rstrip()}\n" for section in made if section)])


def sections_of(text: str) -> dict[str, str]:
    starts = {name: at for name, (heading, _) in SECTIONS.items() if (at := f"\n{text}".find(f"\n{heading}\n")) >= 0}
    ends = [*sorted(starts.values()), len(text)]
    return {name: text[at : ends[ends.index(at) + 1]] for name, at in starts.items()}


def main(folder: Path) -> None:
    found = {name: json.loads(file.read_text()) for name in SECTIONS if (file := folder / f"{name}.json").exists()}
    beside = DOCS / BESIDE
    beside.mkdir(parents=True, exist_ok=True)
    for one in found.get("reproduce", []):
        if one["panels"]:
            draw_panels(outcome(one).panels, one["title"], beside / f"{one['name']}.png")
    if "accuracy" in found:
        (beside / "accuracy.csv").write_text(accuracy_tables.as_csv(msgspec.convert(found["accuracy"], compare.Result)))
    written = DOCS / "results.md"
    written.write_text(page(found, written.read_text() if written.exists() else ""))
    told = "; ".join(f"{one['name']}: {summary(outcome(one).rows)}" for one in found.get("reproduce", []))
    sys.stdout.write(told + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
