"""The commands `check` and `ledger` print what a survey promises; `canonical` and `rehearse` write a survey in other forms."""

import time
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from ldpstream import tables
from ldpstream.arguments import SurveyFile
from ldpstream.check_document import check_document
from ldpstream.outputs import JsonFile, drawable, write_json
from ldpstream.plots import draw_ledger
from ldpstream.promise import cohort_line, promise
from ldpstream.reader import DELTA, legend, reader_line, reader_table, readers
from ldpstream.rehearse import rehearse
from ldpstream.surveys import Survey, load_survey
from ldpstream.terminal import console, fail, tell

READERS = (
    "\nReaders of the published histograms, who see no single report. The chance of any set of histograms changes by at most a "
    f"factor e^loss, plus {DELTA:f}. The conditions: `ldpstream ledger --people`."
)

app = typer.Typer()


@app.command()
def check(
    survey_file: SurveyFile,
    people: Annotated[
        int | None, typer.Option(min=1, help="print only the accuracy with this number of people, and the privacy from readers")
    ] = None,
    width: Annotated[
        float | None, typer.Option(help="with --people: wished half-width of a 95 % interval, as a share", show_default="0.01")
    ] = None,
    json: JsonFile = None,
) -> None:
    """Validate a survey, and print its promise to a participant in plain words, or the accuracy with --people."""
    survey = load_survey(survey_file)
    if people is not None:
        _print_forecast(survey, people, width, json)
        return
    if width is not None:
        fail("--width needs --people")
    console.print("\n".join(promise(survey)), markup=False, highlight=False, soft_wrap=True)
    if json is not None:
        write_json(json, check_document(survey))


def _print_forecast(survey: Survey, people: int, width: float | None, json: Path | None) -> None:
    from ldpstream import forecast_tables
    from ldpstream.forecast import WIDTH, PeopleDocument, forecast, pair_forecasts

    wished = WIDTH if width is None else width
    try:
        rows = forecast(survey, people, wished)
    except ValueError as error:
        fail(str(error))
    for line in forecast_tables.people_lines(survey, people, rows):
        console.print(line, markup=False, highlight=False)
    console.print(forecast_tables.forecast_table(survey, rows, wished))
    for line in forecast_tables.LEGEND:
        console.print(line, markup=False, highlight=False)
    pairs = pair_forecasts(survey, rows)
    for line in forecast_tables.pair_lines(pairs):
        console.print(line, markup=False, highlight=False)
    console.print(READERS)
    learnt = readers(survey, people)
    for row in learnt:
        console.print(reader_line(row), markup=False, highlight=False)
    fingerprint = survey.fingerprint.hex()
    document = PeopleDocument(
        survey=survey.name, fingerprint=fingerprint, people=people, width=wished, forecast=rows, pairs=pairs, reader=learnt
    )  # fmt: skip
    write_json(json, document)


@app.command()
def canonical(survey_file: SurveyFile, json: JsonFile = None) -> None:
    """Print the survey as devices in other languages need it, as one line of JSON."""
    survey = load_survey(survey_file)
    tell(msgspec.json.encode(survey.device_survey).decode())
    write_json(json, survey.device_survey)


@app.command()
def ledger(
    survey_file: SurveyFile,
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE", callback=drawable, help="also draw the curves (PNG, SVG or PDF)")
    ] = None,
    horizon: Annotated[int | None, typer.Option(min=1, help="with --budget: number of reports")] = None,
    budget: Annotated[
        float | None, typer.Option(help="with --horizon: limit of the reports' loss in nats, to find eps_1")
    ] = None,
    people: Annotated[
        int | None, typer.Option(min=1, help="also print what a reader of the histograms of this number of people learns")
    ] = None,
    json: JsonFile = None,
) -> None:
    """Print the privacy loss and the chances of t reports, for every attribute and level."""
    survey = load_survey(survey_file)
    if (horizon is None) != (budget is None):
        fail("--horizon and --budget must be given together")
    rows, solved, learnt = tables.ledger_rows(survey), [], []
    for table in tables.ledger_tables(rows):
        console.print(table)
    console.print("Loss of t reports in nats. Same value: ε_t, at most ε∞. Any values: between any two value sequences.")
    console.print(
        "Right guess: of 100 people, how many the best guesser gets right from the reports of this attribute. Largest: the "
        "largest chance for any one person, the one whose reports reveal most."
    )
    if not all(row["eps_sequence_exact"] for row in rows):
        console.print("* an upper bound; the other numbers of that column are exact")
    if survey.cohort is not None:
        console.print(cohort_line(survey.cohort), markup=False, soft_wrap=True)
    if horizon is not None and budget is not None:
        try:
            solved = tables.solved_rows(survey, horizon, budget)
        except ValueError as error:
            fail(str(error))
        console.print(tables.solved_table(survey, horizon, budget, solved))
    if people is not None:
        try:
            learnt = readers(survey, people)
        except ValueError as error:
            fail(str(error))
        console.print(reader_table(people, learnt))
        for line in legend(survey):
            console.print(line, markup=False, highlight=False)
    if plot is not None:
        draw_ledger(survey, plot)
    write_json(json, {"survey": survey.name, "ledger": rows, "solved": solved, "reader": learnt})


@app.command(name="rehearse")
def rehearse_command(
    survey_file: SurveyFile,
    out: Annotated[Path, typer.Argument(metavar="OUT", help="the file to write")],
    step_seconds: Annotated[int, typer.Option(min=1, max=86_400, help="length of a step in the rehearsal, in seconds")] = 5,
) -> None:
    """Write a copy of a survey, with its start now and short steps, to try the services out."""
    rehearse(survey_file, out, step_seconds, time.time())
    console.print(f"{out}: starts now, a step every {step_seconds} s", markup=False)
