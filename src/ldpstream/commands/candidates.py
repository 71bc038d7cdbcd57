"""The commands `candidates` and `found`: the next survey asks for values that are in `other`."""

import shlex
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape
from rich.table import Table

from ldpstream import surveys
from ldpstream.commands.arguments import SurveyFile
from ldpstream.mechanisms.wording import plural
from ldpstream.output.outputs import JsonFile, OutputError, writable, write_json, write_output
from ldpstream.output.terminal import show_table, table, tell

if TYPE_CHECKING:  # the estimators load slowly
    from ldpstream.planning.candidates import NextSurvey
    from ldpstream.planning.found_values import FoundValue
    from ldpstream.surveys import Survey

app = typer.Typer()


@app.command(name="candidates")
def candidates_command(
    survey_file: SurveyFile,
    listed: Annotated[Path, typer.Option("--list", metavar="FILE", help="public list of values: UTF-8, one in a line")],
    attribute: Annotated[
        str | None, typer.Option(metavar="NAME", help="attribute of the values", show_default="the only one with `unlisted`")
    ] = None,
    people: Annotated[
        int | None, typer.Option(min=1, help="number of people of the survey, to forecast the least share that is found")
    ] = None,
    start: Annotated[
        datetime | None,
        typer.Option(
            formats=["%Y-%m-%dT%H:%M:%SZ"], help="start, in UTC", show_default="as soon as no spaced level needs a fresh budget"
        ),
    ] = None,
    after: Annotated[
        Path | None, typer.Option(metavar="FILE", help="the survey that devices answer before", show_default="SURVEY")
    ] = None,
    steps: Annotated[int | None, typer.Option(min=1, help="steps of the survey", show_default="no end")] = None,
    out: Annotated[Path, typer.Option("-o", "--out", metavar="FOLDER", help="folder of the file to write")] = Path(),
    json: JsonFile = None,
) -> None:
    """Make the next survey: it lists the survey's values and the candidates of a public list."""
    from ldpstream.planning.candidates import next_name, next_start, next_survey, open_attribute, read_candidates
    from ldpstream.surveys.survey_file import read_survey, toml_document

    survey, text = read_survey(survey_file)
    index = open_attribute(survey, attribute)
    asked = survey.attributes[index]
    wanted = read_candidates(listed, asked)
    before = survey if after is None else surveys.load_survey(after)
    begin = next_start(before) if start is None else start.replace(tzinfo=UTC)
    if not out.is_dir():
        raise OutputError(f"--out {out}: is not a folder")
    path = out / f"{next_name(before.name)}.toml"
    if path.exists() or path.is_symlink():
        raise OutputError(f"{path}: exists already; give another folder with --out")
    found = next_survey(survey, toml_document(text), index, wanted, begin, steps=steps, people=people, after=before)
    write_output(path, found.text)
    made = found.survey
    tell(
        f"{path}: survey {made.name} starts at {made.start:%Y-%m-%d %H:%M:%S %Z}. {asked.name} keeps its "
        f"{plural(asked.k, 'value')}, also {asked.catch_all}, and gets {plural(len(wanted), 'candidate')}. The file has no "
        "comments."
    )
    if made.n_steps is not None and made.opens_ms(made.n_steps) <= time.time() * 1000:
        tell(f"{made.name} has ended already. Give a later --start.")
    for line in _lines(before, found):
        tell(line)
    tell("Type next:\n")
    tell(f"    ldpstream diff {shlex.quote(str(after or survey_file))} {shlex.quote(str(path))}")
    write_json(json, {
        "survey": survey.name, "attribute": asked.name, "file": str(path), "name": made.name,
        "fingerprint": made.fingerprint.hex(), "start": made.start, "steps": made.n_steps, "candidates": wanted,
        "least_share": found.least,
    })  # fmt: skip


def _lines(before: "Survey", found: "NextSurvey") -> list[str]:
    from ldpstream.planning.candidates import spacing
    from ldpstream.promises.promise import nats
    from ldpstream.promises.statements import device_loss

    said = [
        f"Level {level}: the window finds {'no candidate' if least is None else f'a candidate with a share of {least:.3g}'} in "
        "9 of 10 cases, if all people choose this level. If no candidate has people, one is found in at most 1 of 20 cases."
        for level, least in found.least.items()
    ]
    if gap := spacing(before):
        said.append(f"Devices must leave survey {before.name} at least {plural(gap, 'step')} before this one starts.")
    fresh = device_loss(before, lambda m: m.eps_inf if m.memoized else 0.0)
    said.append(f"A device loses up to {nats(fresh)} by new memos." if fresh else "Nothing needs a fresh budget.")
    return said


@app.command(name="found")
def found_command(
    old_file: Annotated[Path, typer.Argument(metavar="OLD", help="the survey before the candidates")],
    new_file: Annotated[Path, typer.Argument(metavar="NEW", help="the survey with the candidates")],
    histogram: Annotated[
        Path, typer.Argument(metavar="FILE", help="answer of /api/v1/attributes/NAME/histogram?estimator=mi, JSON")
    ],
    out: Annotated[
        Path | None, typer.Option("-o", "--out", metavar="FILE", callback=writable, help="list of the found values to write")
    ] = None,
    json: JsonFile = None,
) -> None:
    """Say which candidates people have."""
    from ldpstream.planning.found_values import found_values, read_shares

    if out is not None and out.resolve() in [path.resolve() for path in (old_file, new_file, histogram)]:
        raise OutputError(f"--out {out}: the command reads this file; give another one")
    old, new = surveys.load_survey(old_file), surveys.load_survey(new_file)
    shares = read_shares(histogram, new)
    found, tested = found_values(old, new, shares)
    if found:
        show_table(_found_table(found, shares.confidence))
    whose = shares.attribute if shares.cohort is None else f"{shares.attribute} of cohort {shares.cohort}"
    where = f"{whose}, {shares.span} until step {shares.step}, {plural(shares.reports, 'report')}"
    tell(f"{where}: {plural(len(found), 'value')} found among {plural(tested, 'candidate')}.")
    if not shares.complete:
        tell("The estimate is incomplete: reports may be missing.")
    if out is not None:
        write_output(out, "".join(f"{one.label}\n" for one in found))
    write_json(json, {"attribute": shares.attribute, "step": shares.step, "tested": tested, "found": found})


def _found_table(found: "list[FoundValue]", confidence: float) -> Table:
    shown = table("Found", "value", "share", f"{100 * confidence:.4g} % interval")
    for one in found:
        shown.add_row(escape(one.label), f"{100 * one.share:.2f} %", f"{100 * one.low:.2f} to {100 * one.high:.2f} %")
    return shown
