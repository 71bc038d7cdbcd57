"""Writes the pages of `docs/evidence/` from the files that the project's commands write with `--json`.

    python -m lab.results_page FOLDER

If a file is missing, the pages keep their present sections.
"""

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import msgspec
from rich.table import Table
from rich.text import Text

from lab.bench import coverage, literature_cells, stream_memos, stream_tables, streams
from lab.bench.accuracy import compare
from lab.bench.accuracy import tables as accuracy_tables
from lab.bench.estimators import Timing, timing_table
from lab.bench.mechanisms import Bench
from lab.bench.mechanisms_tables import bench_notes, bench_tables
from lab.bench.service_results import ServiceBench
from lab.bench.service_tables import service_notes, service_tables
from lab.panels import draw_panels
from lab.papers.reproduction import Outcome, Row
from lab.papers.reproduction_tables import markdown, outcome, shared_notes, summary

DOCS = Path(__file__).resolve().parents[1] / "docs" / "evidence"
BESIDE = "results"  # folder for pictures and for tables too long for the page
PAPERS_HEAD = """# The papers, reproduced

For anyone who wants to compare our numbers with the published ones, or to run a paper's experiments again. Errors that we
found in papers are in [errata](errata.md).

`python -m lab.papers --data DIR` computes everything; `--list` shows the names, `--quick` computes small parts only. A value
agrees if *differs* is at most three times ± plus the rounding error of the printed value. Notes explain most values that do
not agree; most often the data were not available and were generated.

| column of a paper's page | meaning |
|---|---|
| paper, ours | the published value and ours |
| differs | ours minus the paper's |
| ± | standard deviation of this difference by chance, over the paper's runs and ours |
| best | our best method for the same purpose |
| gain | how many times this method is better than the paper's |

| paper | results | values that agree | median gain |
|---|---|---|---|"""
ACCURACY_HEAD = """# Accuracy, measured

For anyone who doubts the estimates. You see how near they come to the truth, beside other libraries, and how often the 95 %
intervals contain it. Each section names the command that makes its numbers again.
"""
STREAMS_HEAD = """# Values that change, measured

For anyone who chooses between reports with a memo and spaced reports, or who doubts the filtered curve. You can compare them
on streams of values that change, at the same loss.
"""
SPEED_HEAD = """# Speed and memory, measured

For anyone who plans machines. Speeds depend on the machine, so compare them only with one another. Each section names the
command that makes its numbers again.
"""

DISTANCE = """The last column says how far the result is, at most, below the maximum of the log-likelihood of
a report."""


@dataclass(frozen=True)
class Paper:
    """A paper with its own page, which shows the results whose names begin with the paper's."""

    file: str
    title: str
    about: str  # what the paper is about, for the list of papers


PAPERS = {
    "ibu": Paper("paper_ibu.md", "IBU or matrix inversion (2023)", "Arcolezi, Cerna and Palamidessi compare two estimators"),
    "ldp3": Paper(
        "paper_ldp3.md", "LDP³: post-processing (2025)", "Balioglu, Khodaie and Gursoy compare ways to repair shares"
    ),
    "free-will": Paper(
        "paper_free_will.md", "Free-will privacy: GIBU (2022)", "ElSalamouny and Palamidessi join reports of different levels"
    ),
    "allomfree": Paper(
        "paper_allomfree.md", "ALLOMFREE: memoized mechanisms (2022)", "Arcolezi, Couchot, Al Bouna and Xiao compare mechanisms"
    ),
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


def reproduced(written: Any) -> dict[str, str]:
    """Returns the list of papers and the page of each paper, by file."""
    targets: list[tuple[str, str, Outcome]] = [(one["name"], one["title"], outcome(one)) for one in written]
    lines = [PAPERS_HEAD]
    pages = {}
    for prefix, paper in PAPERS.items():
        own = [target for target in targets if target[0].startswith(f"{prefix}-")]
        rows = [row for _, _, found in own for row in found.rows]
        lines.append(f"| [{paper.title}]({paper.file}): {paper.about} | {len(own)} | {_agree(rows)} | {_gain(rows)} |")
        pages[paper.file] = paper_page(paper, own)
    lines += ["", _total([row for _, _, found in targets for row in found.rows if row.published is not None]), ""]
    return {"papers.md": "\n".join(lines), **pages}


def paper_page(paper: Paper, targets: list[tuple[str, str, Outcome]]) -> str:
    shared = shared_notes([found for _, _, found in targets])
    lines = [
        f"# {paper.title}",
        "",
        f"For readers of the paper: {paper.about}. You can compare each of its tables and figures with ours.",
        "[The list of papers](papers.md) explains the columns.",
        "",
        "| result | values | agree | median gain | |",
        "|---|---|---|---|---|",
        *(
            f"| `{name}` | {len(found.rows)} | {_agree(found.rows)} | {_gain(found.rows)} | {title} |"
            for name, title, found in targets
        ),
        "",
    ]
    if shared:
        lines += ["**Notes of the whole page.** Each result names the letters of its notes.", ""]
    for note, letter in shared.items():
        lines += [f"[{letter}] {note}", ""]
    lines += [markdown(*target, f"{BESIDE}/{target[0]}.png" if target[2].panels else "", shared) for target in targets]
    return "\n".join(lines)


def _agree(rows: Sequence[Row]) -> str:
    compared = [row.within for row in rows if row.published is not None]
    return f"{sum(map(bool, compared))} of {len(compared)}" if compared else "no numbers printed"


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


def literature(written: Any) -> str:
    tables = "\n".join(map(rows_of, literature_cells.tables(msgspec.convert(written, literature_cells.Result))))
    return f"## Mechanisms of the literature\n\n`python -m lab.bench literature`. {literature_cells.NOTE}\n\n{tables}"


def estimators(written: Any) -> str:
    return f"## Estimators: speed\n\n`python -m lab.bench estimators`. {DISTANCE}\n\n" + rows_of(
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


@dataclass(frozen=True)
class Page:
    """A page with the results of some commands.

    Attributes:
        head: the title, the first line and what holds for all sections.
        sections: command -> its heading, and the section's writer.
    """

    head: str
    sections: dict[str, tuple[str, Callable[[Any], str]]]


PAGES = {
    "accuracy.md": Page(
        ACCURACY_HEAD,
        {
            "accuracy": ("## Estimators: accuracy", accurate),
            "coverage": ("## Intervals of 95 %", covered),
            "literature": ("## Mechanisms of the literature", literature),
        },
    ),
    "streams.md": Page(
        STREAMS_HEAD,
        {"streams": ("## Values that change", streamed)},
    ),
    "speed.md": Page(
        SPEED_HEAD,
        {
            "mechanisms": ("## Reports: speed and memory", mechanisms),
            "estimators": ("## Estimators: speed", estimators),
            "service": ("## The service, over Kafka and Redis", service),
        },
    ),
}


def page(about: Page, found: dict[str, Any], before: str) -> str:
    kept = sections_of(about, before)
    made = [write(found[name]) if name in found else kept.get(name, "") for name, (_, write) in about.sections.items()]
    return "\n".join([about.head, *(f"{section.rstrip()}\n" for section in made if section)])


def sections_of(about: Page, text: str) -> dict[str, str]:
    starts = {name: at for name, (heading, _) in about.sections.items() if (at := f"\n{text}".find(f"\n{heading}\n")) >= 0}
    ends = [*sorted(starts.values()), len(text)]
    return {name: text[at : ends[ends.index(at) + 1]] for name, at in starts.items()}


def main(folder: Path) -> None:
    commands = ("reproduce", *(command for about in PAGES.values() for command in about.sections))
    found = {name: json.loads(file.read_text()) for name in commands if (file := folder / f"{name}.json").exists()}
    beside = DOCS / BESIDE
    beside.mkdir(parents=True, exist_ok=True)
    for one in found.get("reproduce", []):
        if one["panels"]:
            draw_panels(outcome(one).panels, one["title"], beside / f"{one['name']}.png")
    if "accuracy" in found:
        (beside / "accuracy.csv").write_text(accuracy_tables.as_csv(msgspec.convert(found["accuracy"], compare.Result)))
    for name, about in PAGES.items():
        written = DOCS / name
        written.write_text(page(about, found, written.read_text() if written.exists() else ""))
    if "reproduce" in found:
        for name, text in reproduced(found["reproduce"]).items():
            (DOCS / name).write_text(text)
    told = "; ".join(f"{one['name']}: {summary(outcome(one).rows)}" for one in found.get("reproduce", []))
    sys.stdout.write(told + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
