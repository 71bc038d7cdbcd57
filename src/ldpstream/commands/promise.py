"""The commands `check` and `ledger` print what a survey promises; `canonical` and `rehearse` write a survey in other forms."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from ldpstream import surveys
from ldpstream.commands.arguments import SurveyFile
from ldpstream.output.outputs import JsonFile, writable, write_json, write_output
from ldpstream.output.terminal import console, fail, tell, tell_wrapped

if TYPE_CHECKING:
    from ldpstream.surveys import Survey

app = typer.Typer()
HEADING = 20  # letters for the headings of the label


@app.command()
def check(
    survey_file: SurveyFile,
    people: Annotated[
        int | None,
        typer.Option(min=1, help="print only the accuracy with this number of people, and the privacy in their crowd"),
    ] = None,
    width: Annotated[
        float | None, typer.Option(help="with --people: wished half-width of a 95 % interval, as a share", show_default="0.01")
    ] = None,
    delta: Annotated[
        float | None,
        typer.Option(help="with --people: δ of the second promise, far below 1 / people; at least 1e-10", show_default="1e-9"),
    ] = None,
    label: Annotated[bool, typer.Option("--label", help="print only the label: the promise in eight lines")] = False,
    svg: Annotated[
        Path | None, typer.Option("--svg", metavar="FILE", callback=writable, help="with --label: also write it as a picture")
    ] = None,
    json: JsonFile = None,
) -> None:
    """Validate a survey, and print its promise to a participant in plain words, or the accuracy with --people."""
    from ldpstream.promises.check_document import check_document  # only here: these modules load slowly
    from ldpstream.promises.label_picture import picture
    from ldpstream.surveys.signatures import signed_at

    survey = surveys.load_survey(survey_file)
    if people is not None:
        if label:
            fail("give --label or --people, not both")
        _print_forecast(survey, people, width, delta, json)
        return
    given = {"--width": width is not None, "--delta": delta is not None}
    for option in (option for option, used in given.items() if used):
        fail(f"{option} needs --people")
    if svg is not None and not label:
        fail("--svg needs --label")
    document = check_document(survey, signed_at(survey, survey_file))
    if label:
        tell_wrapped(document.label.title)
        for line in document.label.lines:
            tell_wrapped(line.text, f"{line.heading:{HEADING}}")
    else:
        for said in document.promise:
            tell_wrapped(said)
    if svg is not None:
        write_output(svg, picture(document.label))
    write_json(json, document)


def _print_forecast(survey: "Survey", people: int, width: float | None, delta: float | None, json: Path | None) -> None:
    from ldpstream.output import forecast_tables
    from ldpstream.planning.forecast import WIDTH, PeopleDocument, forecast
    from ldpstream.promises.crowds import DELTA
    from ldpstream.promises.filling import of_check
    from ldpstream.promises.second_promise import conditions, second_promise

    wished, added = WIDTH if width is None else width, DELTA if delta is None else delta
    try:
        rows, hidden = forecast(survey, people, wished), second_promise(survey, people, added)
    except ValueError as error:
        fail(str(error))
    for line in forecast_tables.people_lines(survey, people, rows):
        console.print(line, markup=False, highlight=False)
    console.print(forecast_tables.forecast_table(survey, rows, wished))
    for line in of_check("forecast", {}):
        console.print(line, markup=False, highlight=False)
    console.print(forecast_tables.second_promise_table(people, hidden))
    for line in conditions(survey, added, stated=False):
        console.print(line, markup=False, highlight=False)
    document = PeopleDocument(
        survey=survey.name, fingerprint=survey.fingerprint.hex(), people=people, width=wished,
        forecast=rows, relay_required=survey.relay is not None, second_promise=hidden,
    )  # fmt: skip
    write_json(json, document)


@app.command()
def canonical(survey_file: SurveyFile) -> None:
    """Print the survey as devices in other languages need it, as one line of JSON."""
    tell(msgspec.json.encode(surveys.load_survey(survey_file).device_survey).decode())


@app.command()
def ledger(survey_file: SurveyFile, json: JsonFile = None) -> None:
    """Print the privacy loss and the chances of t reports, for every attribute and level."""
    from ldpstream.output import ledger_tables
    from ldpstream.promises.filling import of_check

    survey = surveys.load_survey(survey_file)
    rows = ledger_tables.ledger_rows(survey)
    for table in ledger_tables.ledger_tables(rows):
        console.print(table)
    bounds, cohort = not all(row["eps_sequence_exact"] for row in rows), survey.cohort
    for line in of_check("ledger", {"bounds": bounds, "cohort": cohort and cohort.name}):
        console.print(line, markup=False, highlight=False)
    write_json(json, {"survey": survey.name, "ledger": rows})


@app.command(name="rehearse")
def rehearse_command(
    survey_file: SurveyFile,
    out: Annotated[Path, typer.Argument(metavar="OUT", help="the file to write")],
    step_seconds: Annotated[int, typer.Option(min=1, max=86_400, help="length of a step in the rehearsal, in seconds")] = 5,
) -> None:
    """Write a copy of a survey, with its start now and short steps, to try the services out."""
    from ldpstream.services.rehearse import rehearse

    rehearse(survey_file, out, step_seconds, time.time())
    console.print(f"{out}: starts now, a step every {step_seconds} s", markup=False)
