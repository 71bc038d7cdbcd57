"""The commands `surveys` and `diff`, which show a team's surveys and how a survey differs from the one that it replaces."""

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from rich.table import Column, Table

from ldpstream import surveys
from ldpstream.output.outputs import JsonFile, utf8, write_json
from ldpstream.output.terminal import fail, say, show_table, tell

if TYPE_CHECKING:
    from ldpstream.surveys import Survey

app = typer.Typer()


@app.command(name="surveys")
def surveys_command(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="folder of survey files (*.toml)")],
    json: JsonFile = None,
) -> None:
    """List the surveys of a folder: state, steps, end, owner, fingerprint."""
    from ldpstream.runtime.clock import now_ms  # only here: these modules load slowly
    from ldpstream.surveys.life.folder import survey_files

    if not folder.is_dir():
        fail(f"{folder}: is not a folder")
    files = survey_files(folder)
    if not files:
        fail(f"{folder}: no survey found; a folder's surveys are its files *.toml")
    found, broken = _read(files)
    now = now_ms()
    rows = [_row(survey, path, found, now) for path, survey in found.items()]
    table = Table(Column("name", overflow="fold"), "state", "steps", "ends (UTC)", "owner", Column("fingerprint", no_wrap=True))
    for row in rows:
        steps = f"{row['steps']:,}" + ("" if row["of_steps"] is None else f" of {row['of_steps']:,}")
        shown = [row["name"], row["state"], steps, row["ends"], row["owner"], row["fingerprint"]]
        table.add_row(*(escape(cell or "–") for cell in shown))
    show_table(table)
    write_json(json, {"surveys": rows, "broken": broken})
    for path, why in broken.items():
        say(f"{path}: {why}")
    if broken:
        raise typer.Exit(2)


def _read(files: list[Path]) -> "tuple[dict[Path, Survey], dict[str, str]]":
    from ldpstream.surveys.life.lineage import predecessors

    found: dict[Path, Survey] = {}
    broken: dict[str, str] = {}
    for path in files:
        try:
            found[path] = surveys.load_survey(path)
        except surveys.SurveyError as error:
            broken[_text(path)] = str(error).removeprefix(f"{path}: ")
    known = {survey.fingerprint.hex(): survey for survey in found.values()}
    first: dict[str, Path] = {}
    for path, survey in found.items():
        twin = first.setdefault(survey.name, path)
        if found[twin].fingerprint != survey.fingerprint:
            broken[_text(path)] = f"two different surveys are named {survey.name}: {_text(twin)} has this name too"
            continue
        try:
            predecessors(survey, known)
        except surveys.SurveyError as error:
            broken[_text(path)] = str(error)
    return found, broken


def _text(path: Path) -> str:
    return utf8(str(path))


def _row(survey: "Survey", path: Path, found: "dict[Path, Survey]", now: int) -> dict[str, Any]:
    from ldpstream.surveys.life.lineage import state

    fingerprint = survey.fingerprint.hex()
    by = next((s.name for s in found.values() if s.replaces == fingerprint and s.step_at(now) >= 0), None)
    begun = max(0, survey.step_at(now) + 1)
    ends = None if survey.n_steps is None else datetime.fromtimestamp(survey.opens_ms(survey.n_steps) / 1000, UTC)
    return {
        "name": survey.name, "state": state(survey, now, by is not None), "replaced_by": by, "file": _text(path),
        "steps": begun if survey.n_steps is None else min(begun, survey.n_steps), "of_steps": survey.n_steps,
        "ends": None if ends is None else f"{ends:%Y-%m-%d %H:%M}", "owner": survey.owner,
        "fingerprint": fingerprint, "title": survey.title,
    }  # fmt: skip


@app.command(name="diff")
def diff_command(
    old_file: Annotated[Path, typer.Argument(metavar="OLD", help="the survey file before the change")],
    new_file: Annotated[Path, typer.Argument(metavar="NEW", help="the survey file after the change")],
    json: JsonFile = None,
) -> None:
    """Show what changes from one survey to another: keys, devices' budgets, and how the histories join."""
    from ldpstream.planning import survey_changes
    from ldpstream.surveys.differences import differences

    old, new = surveys.load_survey(old_file), surveys.load_survey(new_file)
    found = differences(old, new)
    if found:
        show_table(survey_changes.differences_table(found))
    chances = survey_changes.chances(old, new)
    devices = survey_changes.devices(old, new, chances)
    histories = survey_changes.histories(old, new)
    for line in (*devices, *(f"History of {attribute}: {said}." for attribute, said in histories.items())):
        tell(line)
    write_json(json, {
        "old": old.fingerprint.hex(), "new": new.fingerprint.hex(), "differences": [one._asdict() for one in found],
        "same_devices": old.fingerprint == new.fingerprint, "devices": devices, "histories": histories,
        "guess_both": chances,
    })  # fmt: skip
