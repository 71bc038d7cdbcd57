"""The commands `candidates` and `found`: the next survey asks for values that are in `other`."""

import math
import shlex
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer
from rich.markup import escape
from rich.table import Table

from ldpstream import surveys
from ldpstream.arguments import SurveyFile
from ldpstream.mechanisms.wording import plural
from ldpstream.outputs import JsonFile, OutputError, writable, write_json, write_output
from ldpstream.terminal import NONE, show_table, table, tell

if TYPE_CHECKING:  # the estimators load slowly
    from ldpstream.candidates import Cost, NextSurvey
    from ldpstream.found_values import FoundValue
    from ldpstream.surveys import Survey

app = typer.Typer()


@app.command(name="candidates")
def candidates_command(
    survey_file: SurveyFile,
    listed: Annotated[
        Path, typer.Option("--list", metavar="FILE", help="public list of values: UTF-8, one in a line, the most likely first")
    ],
    attribute: Annotated[
        str | None, typer.Option(metavar="NAME", help="attribute of the values", show_default="the only one with `unlisted`")
    ] = None,
    people: Annotated[
        int | None, typer.Option(min=1, help="number of people of the survey, to forecast the least share that is found")
    ] = None,
    share: Annotated[
        float | None,
        typer.Option(help="with --people: ask only as many candidates as let this share be found", show_default="all"),
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
    most: Annotated[int, typer.Option(min=1, max=100_000, help="largest number of candidates in one survey")] = 1000,
    mechanism: Annotated[
        str | None, typer.Option(help="one-time mechanism of the attribute's levels with `eps`", show_default="the survey's")
    ] = None,
    steps: Annotated[
        int | None, typer.Option(min=1, help="steps of each survey", show_default="a window; a single survey has no end")
    ] = None,
    out: Annotated[Path, typer.Option("-o", "--out", metavar="FOLDER", help="folder of the files to write")] = Path(),
    json: JsonFile = None,
) -> None:
    """Make the next survey, or several: they list the survey's values and candidates from a public list."""
    from ldpstream.candidates import (
        CandidatesError,
        fitting,
        lighter,
        next_start,
        open_attribute,
        read_candidates,
        rounds,
    )
    from ldpstream.surveys.survey_file import read_survey, toml_document

    survey, text = read_survey(survey_file)
    document = toml_document(text)
    index = open_attribute(survey, attribute)
    wanted = read_candidates(listed, survey.attributes[index])
    before = survey if after is None else surveys.load_survey(after)
    begin = next_start(before) if start is None else start.replace(tzinfo=UTC)
    if not out.is_dir():
        raise OutputError(f"--out {out}: is not a folder")
    number = len(wanted)
    _new_files(out, before.name, 1)  # before the calculations; with --share they give the number of files
    if share is not None:
        if people is None or not 0 < share < 1:
            raise CandidatesError(f"--share needs --people, and a share between 0 and 1, got {share}")
        number = fitting(
            survey, document, index, wanted, begin,
            most=most, people=people, share=share, steps=steps, mechanism=mechanism, after=before,
        )  # fmt: skip
    paths = _new_files(out, before.name, math.ceil(number / most))
    found = rounds(
        survey, document, index, wanted[:number], begin,
        most=most, steps=steps, people=people, mechanism=mechanism, after=before,
    )  # fmt: skip
    for path, one in zip(paths, found, strict=True):
        write_output(path, one.text)
    show_table(_rounds_table(found))
    asked = survey.attributes[index]
    tell(
        f"{asked.name} keeps its {plural(asked.k, 'value')}, also {asked.catch_all}, and gets {plural(number, 'candidate')}. "
        "The files have no comments."
    )
    if number < len(wanted):
        left_out = plural(len(wanted) - number, "candidate")
        tell(f"{left_out} at the end of the list left out: with more candidates, the least share is larger.")
    if (ends := found[0].survey.n_steps) is not None and found[0].survey.opens_ms(ends) <= time.time() * 1000:
        tell(f"{found[0].survey.name} has ended already. Give a later --start.")
    for level, name, factor in lighter(found[0].survey, index):
        tell(f"{asked.name}, {level}: {name} has {factor:.3g} times less variance for so many values: --mechanism {name}")
    for line in _lines(before, found, people):
        tell(line)
    tell("Type next:\n")
    tell(f"    ldpstream diff {shlex.quote(str(after or survey_file))} {shlex.quote(str(paths[0]))}")
    made = [_document(path, one) for path, one in zip(paths, found, strict=True)]
    write_json(json, {"survey": survey.name, "attribute": asked.name, "left_out": len(wanted) - number, "surveys": made})


def _new_files(out: Path, name: str, n: int) -> list[Path]:
    from ldpstream.candidates import next_name

    paths = list[Path]()
    for _ in range(n):
        name = next_name(name)
        paths.append(out / f"{name}.toml")
        if paths[-1].exists() or paths[-1].is_symlink():
            raise OutputError(f"{paths[-1]}: exists already; give another folder with --out")
    return paths


def _document(path: Path, one: "NextSurvey") -> dict[str, Any]:
    made = one.survey
    return {
        "file": str(path), "name": made.name, "fingerprint": made.fingerprint.hex(), "start": made.start, "steps": made.n_steps,
        "candidates": one.candidates, "least_share": one.least, "costs": msgspec.to_builtins(one.costs),
    }  # fmt: skip


def _rounds_table(found: "list[NextSurvey]") -> Table:
    shown = table("Next surveys", "name", "start (UTC)", "steps", "candidates", "least share found", texts=2)
    for one in found:
        least = [
            (f"{level}: " if len(one.least) > 1 else "") + (NONE if x is None else f"{100 * x:.3g} %")
            for level, x in one.least.items()
        ]
        steps = NONE if one.survey.n_steps is None else f"{one.survey.n_steps:,}"
        row = one.survey.name, f"{one.survey.start:%Y-%m-%d %H:%M}", steps, f"{len(one.candidates):,}", ", ".join(least) or NONE
        shown.add_row(*map(escape, row))
    return shown


def _lines(survey: "Survey", found: "list[NextSurvey]", people: int | None) -> list[str]:
    from ldpstream.candidates import spacing
    from ldpstream.promises.promise import nats
    from ldpstream.promises.statements import device_loss

    said = []
    if people is not None:
        said.append(
            "least share found: with this share, a candidate is found in 9 of 10 cases, if all people choose one level. If no "
            "candidate has people, one is found in at most 1 of 20 cases."
        )
    if gap := spacing(survey):
        said.append(f"Devices must leave a survey at least {plural(gap, 'step')} before the next one starts.")
    costs = [cost for one in found for cost in one.costs]
    said += [f"{cost.attribute}, {cost.level}: {_cost(cost)}" for cost in found[0].costs]
    fresh = device_loss(survey, lambda m: m.eps_inf if m.memoized else 0.0)
    if fresh:
        said.append(f"A device loses up to {nats(fresh)} by new memos in each next survey, in all {nats(len(found) * fresh)}.")
    elif all(cost.eps_window == cost.eps for cost in costs):
        said.append("Nothing needs a fresh budget.")
    return said


def _cost(cost: "Cost") -> str:
    from ldpstream.promises.promise import nats

    if cost.eps_window is None:
        return f"new memos in each survey; while the value stays the same, each survey loses at most {nats(cost.fresh or 0)}."
    steps = f"any {cost.every_steps} consecutive steps" if cost.every_steps > 1 else "each step"
    twice = (
        "" if cost.eps_window == cost.eps else f" at the change of the survey, since it starts too early, else {nats(cost.eps)}"
    )
    left = "" if cost.reports_left is None else f"; {plural(cost.reports_left, 'report')} of its lifetime are left"
    return f"{steps} lose at most {nats(cost.eps_window)}{twice or ', also at the change of the survey'}{left}."


@app.command(name="found")
def found_command(
    old_file: Annotated[Path, typer.Argument(metavar="OLD", help="the survey before the candidates")],
    new_file: Annotated[Path, typer.Argument(metavar="NEW", help="the survey with the candidates")],
    histogram: Annotated[
        Path, typer.Argument(metavar="FILE", help="answer of /api/v1/attributes/NAME/histogram?estimator=mi, JSON")
    ],
    candidates: Annotated[
        int | None, typer.Option(min=1, help="number of candidates in all surveys of the list", show_default="of NEW")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("-o", "--out", metavar="FILE", callback=writable, help="list of the found values to write")
    ] = None,
    json: JsonFile = None,
) -> None:
    """Say which candidates people have."""
    from ldpstream.found_values import found_values, read_shares

    if out is not None and out.resolve() in [path.resolve() for path in (old_file, new_file, histogram)]:
        raise OutputError(f"--out {out}: the command reads this file; give another one")
    old, new = surveys.load_survey(old_file), surveys.load_survey(new_file)
    shares = read_shares(histogram, new)
    found, tested = found_values(old, new, shares, candidates)
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
