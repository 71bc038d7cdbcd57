"""The command `diff`, which shows how a survey differs from the one that it replaces."""

from pathlib import Path
from typing import Annotated

import typer

from ldpstream import surveys
from ldpstream.output.outputs import JsonFile, write_json
from ldpstream.output.terminal import console, tell

app = typer.Typer()


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
        console.print(survey_changes.differences_table(found))
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
