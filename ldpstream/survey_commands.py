"""The commands `surveys` and `diff`, which show a team's surveys and how a survey differs from the one that it replaces."""

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Column, Table

from ldpstream.mechanisms.guessing import percent_up
from ldpstream.outputs import JsonFile, write_json
from ldpstream.promise import loss_for_ever, nats
from ldpstream.runtime.clock import now_ms
from ldpstream.surveys import Survey, SurveyError, load_survey
from ldpstream.surveys.device_chance import chance_of_both
from ldpstream.surveys.differences import Difference, differences
from ldpstream.surveys.folder import survey_files
from ldpstream.surveys.lineage import join, predecessors, state
from ldpstream.terminal import console, fail, say, tell

app = typer.Typer()
LONGEST = 60  # characters of a value in the table of `diff`


@app.command(name="surveys")
def surveys_command(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="folder of survey files (*.toml)")],
    json: JsonFile = None,
) -> None:
    """List the surveys of a folder: state, steps, end, owner, fingerprint."""
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
    console.print(table)
    write_json(json, {"surveys": rows, "broken": broken})
    for path, why in broken.items():
        say(f"{path}: {why}")
    if broken:
        raise typer.Exit(2)


def _read(files: list[Path]) -> tuple[dict[Path, Survey], dict[str, str]]:
    found: dict[Path, Survey] = {}
    broken: dict[str, str] = {}
    for path in files:
        try:
            found[path] = load_survey(path)
        except SurveyError as error:
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
        except SurveyError as error:
            broken[_text(path)] = str(error)
    return found, broken


def _text(path: Path) -> str:
    return os.fsencode(path).decode("utf-8", "replace")


def _row(survey: Survey, path: Path, found: dict[Path, Survey], now: int) -> dict[str, Any]:
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
    old, new = load_survey(old_file), load_survey(new_file)
    found = differences(old, new)
    if found:
        console.print(differences_table(found))
    chances = _chances(old, new)
    devices = _devices(old, new, chances)
    histories = _histories(old, new)
    for line in (*devices, *(f"History of {attribute}: {said}." for attribute, said in histories.items())):
        tell(line)
    write_json(json, {
        "old": old.fingerprint.hex(), "new": new.fingerprint.hex(), "differences": [one._asdict() for one in found],
        "same_devices": old.fingerprint == new.fingerprint, "devices": devices, "histories": histories,
        "guess_both": chances,
    })  # fmt: skip


def differences_table(found: list[Difference]) -> Table:
    table = Table(*(Column(head, overflow="fold") for head in ("key", "old", "new", "new fingerprint")))
    for one in found:
        table.add_row(escape(one.key), *(_short(value) for value in _shown(one)), "yes" if one.fingerprint else "no")
    return table


def _shown(one: Difference) -> tuple[Any, Any]:
    if isinstance(one.old, list) and isinstance(one.new, list) and (before := set(one.old)) != (after := set(one.new)):
        gone, added = ([x for x in one.old if x not in after], [x for x in one.new if x not in before])
        return ("without " if gone else "") + ", ".join(map(str, gone)), ("with " if added else "") + ", ".join(map(str, added))
    return one.old, one.new


def _short(value: Any) -> str:
    text = "–" if value is None or value == "" else str(value)
    return escape(text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…")


def _devices(old: Survey, new: Survey, chances: dict[str, float]) -> list[str]:
    if old.fingerprint == new.fingerprint:
        return [f"Devices keep their memos and their budget: the fingerprint stays {new.fingerprint.hex()}."]
    before, after = loss_for_ever(old), loss_for_ever(new)
    lines = [
        "Devices need a new file with new memos and a new budget: the fingerprint changes from "
        f"{old.fingerprint.hex()} to {new.fingerprint.hex()}.",
        f"The losses add up. While a person's values stay the same, all reports of a device lose at most {nats(before)} in the "
        f"earlier survey and {nats(after)} in the new survey, together {nats(before + after)}.",
    ]
    if chances:
        told = ", ".join(f"{name} at most {percent_up(chance)}" for name, chance in chances.items())
        lines.append(f"Chance of a right guess of an unchanged value, from all reports in both surveys: {told}.")
    if old.name == new.name:
        lines.append(f"Both surveys are named {new.name}: give the new survey a name of its own, since topics have its name.")
    return lines


def _chances(old: Survey, new: Survey) -> dict[str, float]:
    if old.fingerprint == new.fingerprint:
        return {}
    asked = {attribute.name for attribute in old.attributes}
    return {a.name: float(chance_of_both(old, new, a.name)) for a in new.attributes if a.name in asked}


def _histories(old: Survey, new: Survey) -> dict[str, str]:
    if old.fingerprint == new.fingerprint:
        return {attribute.name: "goes on" for attribute in new.attributes}
    said = {}
    for attribute in new.attributes:
        found = join(old, new, attribute.name)
        said[attribute.name] = ("joined" if found.joined else "not joined") + (f": {found.reason}" if found.reason else "")
    names = {attribute.name for attribute in new.attributes}
    said |= {a.name: f"ends: {new.name} has no attribute {a.name}" for a in old.attributes if a.name not in names}
    if new.replaces != old.fingerprint.hex():
        said = {name: f'{how}; it needs replaces = "{old.fingerprint.hex()}"' if how.startswith("joined") else how
                for name, how in said.items()}  # fmt: skip
    return said
