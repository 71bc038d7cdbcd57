"""Checks a device that somebody else wrote (docs/reference/conformance.md).

python -m devices.conformance SURVEY FILE              checks the calls of a file, or of a folder of .jsonl files
python -m devices.conformance SURVEY --listen PORT     checks how the device sends, until Ctrl-C
python -m devices.conformance SURVEY --histories FILE  writes histories of use, for surveys with recipes
python -m devices.conformance SURVEY --recipes FILE    checks the device's answers to these histories
"""

from pathlib import Path
from typing import Annotated

import msgspec
import typer

from devices.conformance.calls import read_calls
from devices.conformance.conformance import check_device
from devices.conformance.conformance_tables import conformance_tables, conformance_verdict, passed_or_failed
from devices.conformance.listener import listening
from devices.conformance.recipes import check_recipes, write_histories
from lab.terminal import activity
from ldpstream.commands.arguments import SurveyFile
from ldpstream.commands.cli import run
from ldpstream.mechanisms.wording import plural
from ldpstream.output.outputs import JsonFile, write_json
from ldpstream.output.terminal import console, tell
from ldpstream.services.signals import ends_on_signal
from ldpstream.surveys import Survey
from ldpstream.surveys.survey_file import read_survey

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def conformance_command(
    survey_file: SurveyFile,
    calls: Annotated[
        Path | None,
        typer.Argument(
            metavar="[FILE]", help="calls of the device, JSON lines; or a folder of .jsonl files", show_default="none"
        ),
    ] = None,
    listen: Annotated[
        int | None, typer.Option(min=0, max=65535, metavar="PORT", help="check how the device sends to this port, until Ctrl-C")
    ] = None,
    histories: Annotated[Path | None, typer.Option(metavar="FILE", help="write histories of use to this file")] = None,
    recipes: Annotated[
        Path | None, typer.Option(metavar="FILE", help="check the answers to the histories in this file")
    ] = None,
    json: JsonFile = None,
) -> None:
    """Check a device of another author. Exit status 1 if the check finds a fault."""
    if sum(given is not None for given in (calls, listen, histories, recipes)) != 1:
        raise typer.BadParameter("give one of FILE, --listen, --histories and --recipes", param_hint="FILE")
    survey, toml = read_survey(survey_file)
    if histories is not None:
        write_histories(survey, histories)
        failures = []
    elif calls is not None:
        failures = _check_calls(survey, calls, json)
    elif recipes is not None:
        failures = _check_recipes(survey, recipes, json)
    else:
        assert listen is not None
        if survey.relay is not None:
            raise typer.BadParameter(f"survey {survey.name} requires a relay: its devices send no plain request to check")
        failures = _check_sending(survey, toml, listen, json)
    if failures:
        raise typer.Exit(1)


def _check_calls(survey: Survey, path: Path, json: Path | None) -> list[str]:
    with activity() as progress:
        progress(f"calls of {path}")
        found = check_device(survey, read_calls(survey, path))
    for table in conformance_tables(found):
        console.print(table)
    for failure in found.failures:
        tell(failure)
    tell(conformance_verdict(found))
    write_json(json, {**msgspec.to_builtins(found), "failures": found.failures, "passed": found.passed})
    return found.failures


def _check_recipes(survey: Survey, path: Path, json: Path | None) -> list[str]:
    answers, faults = check_recipes(survey, path)
    failures = [str(fault) for fault in faults]
    for failure in failures:
        tell(failure)
    tell(f"{passed_or_failed(failures)} ({plural(answers, 'answer')})")
    write_json(json, {"answers": answers, "failures": failures, "passed": not failures})
    return failures


def _check_sending(survey: Survey, toml: str, port: int, json: Path | None) -> list[str]:
    stop = ends_on_signal()
    with listening(survey, toml, port) as (sending, url):
        tell(f"A gateway at {url}, until Ctrl-C. It refuses the first attempt of most requests, or does not answer it.")
        stop.wait()
        failures = [str(fault) for fault in sending.verdict()]
    for failure in failures:
        tell(failure)
    attempts, requests = plural(sending.attempts, "attempt"), plural(sending.requests, "request")
    tell(f"{passed_or_failed(failures)} ({attempts} for {requests})")
    write_json(json, {"attempts": sending.attempts, "requests": sending.requests, "failures": failures, "passed": not failures})
    return failures


if __name__ == "__main__":
    run(app)
