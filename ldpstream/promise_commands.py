"""The commands `check` and `ledger` print what a survey promises; `canonical` and `rehearse` write a survey in other forms."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from ldpstream import surveys
from ldpstream.arguments import SurveyFile
from ldpstream.outputs import JsonFile, drawable, write_json
from ldpstream.terminal import console, fail, tell

if TYPE_CHECKING:
    from ldpstream.behind_relay import BehindRelay
    from ldpstream.surveys import Survey

RelayOption = Annotated[
    bool,
    typer.Option(
        "--relay",
        help="with --people, or crowd in the survey: also what reports reveal behind a relay; the default if it is required",
    ),
]
Colluding = Annotated[
    int, typer.Option(min=0, help="with --people: number of these people who forge reports or tell what they sent")
]

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
    relay: RelayOption = False,
    colluding: Colluding = 0,
    json: JsonFile = None,
) -> None:
    """Validate a survey, and print its promise to a participant in plain words, or the accuracy with --people."""
    from ldpstream.check_document import check_document  # only here: these modules load slowly

    survey = surveys.load_survey(survey_file)
    if people is not None:
        _print_forecast(survey, people, width, relay, colluding, json)
        return
    _need_people({"--width": width is not None, "--relay": relay and survey.crowd is None, "--colluding": colluding > 0})
    document = check_document(survey)
    console.print("\n".join(document.promise), markup=False, highlight=False, soft_wrap=True)
    write_json(json, document)


def _need_people(given: dict[str, bool]) -> None:
    for option in (option for option, used in given.items() if used):
        fail(f"{option} needs --people")


def _second_promise(survey: "Survey", people: int | None, relay: bool, colluding: int) -> "list[BehindRelay]":
    from ldpstream.behind_relay import behind_relay

    return behind_relay(survey, people, colluding) if relay or survey.relay is not None else []


def _print_forecast(survey: "Survey", people: int, width: float | None, relay: bool, colluding: int, json: Path | None) -> None:
    from ldpstream import forecast_tables
    from ldpstream.behind_relay import colluding_lines, second_promise
    from ldpstream.forecast import WIDTH, PeopleDocument, forecast, pair_forecasts
    from ldpstream.reader import READERS, reader_line, readers

    wished = WIDTH if width is None else width
    try:
        rows = forecast(survey, people, wished)
        learnt, hidden = readers(survey, people, colluding), _second_promise(survey, people, relay, colluding)
    except ValueError as error:
        fail(str(error))
    for line in forecast_tables.people_lines(survey, people, rows):
        console.print(line, markup=False, highlight=False)
    console.print(forecast_tables.forecast_table(survey, rows, wished))
    for line in (*forecast_tables.LEGEND, *forecast_tables.mean_lines(survey, rows, wished)):
        console.print(line, markup=False, highlight=False)
    pairs = pair_forecasts(survey, rows)
    for line in forecast_tables.pair_lines(pairs):
        console.print(line, markup=False, highlight=False)
    console.print(READERS)
    for line in (*map(reader_line, learnt), *([] if hidden else colluding_lines(survey, people, colluding))):
        console.print(line, markup=False, highlight=False)
    if hidden:
        console.print()
        for line in second_promise(survey, people, colluding, hidden):
            console.print(line, markup=False, highlight=False)
    document = PeopleDocument(
        survey=survey.name, fingerprint=survey.fingerprint.hex(), people=people, colluding=colluding, width=wished,
        forecast=rows, pairs=pairs, reader=learnt, relay_required=survey.relay is not None, behind_relay=hidden,
    )  # fmt: skip
    write_json(json, document)


@app.command()
def canonical(survey_file: SurveyFile, json: JsonFile = None) -> None:
    """Print the survey as devices in other languages need it, as one line of JSON."""
    survey = surveys.load_survey(survey_file)
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
    relay: RelayOption = False,
    colluding: Colluding = 0,
    json: JsonFile = None,
) -> None:
    """Print the privacy loss and the chances of t reports, for every attribute and level."""
    from ldpstream import tables  # only here: these modules load slowly
    from ldpstream.behind_relay import colluding_lines, relay_lines, relay_table
    from ldpstream.plots import draw_ledger
    from ldpstream.promise import cohort_line
    from ldpstream.reader import legend, reader_table, readers

    survey = surveys.load_survey(survey_file)
    if (horizon is None) != (budget is None):
        fail("--horizon and --budget must be given together")
    learnt, hidden = [], []
    if people is None and survey.crowd is None:
        _need_people({"--relay": relay, "--colluding": colluding > 0})
    else:
        try:
            learnt = [] if people is None else readers(survey, people, colluding)
            hidden = _second_promise(survey, people, relay, colluding)
        except ValueError as error:
            fail(str(error))
    rows, solved = tables.ledger_rows(survey), []
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
        console.print(reader_table(people, learnt))
        for line in (*legend(survey), *([] if hidden else colluding_lines(survey, people, colluding))):
            console.print(line, markup=False, highlight=False)
    if hidden:
        console.print(relay_table(people, hidden))
        for line in relay_lines(survey, people, colluding):
            console.print(line, markup=False, highlight=False)
    if plot is not None:
        draw_ledger(survey, plot)
    write_json(json, {"survey": survey.name, "ledger": rows, "solved": solved, "reader": learnt, "behind_relay": hidden})


@app.command(name="rehearse")
def rehearse_command(
    survey_file: SurveyFile,
    out: Annotated[Path, typer.Argument(metavar="OUT", help="the file to write")],
    step_seconds: Annotated[int, typer.Option(min=1, max=86_400, help="length of a step in the rehearsal, in seconds")] = 5,
) -> None:
    """Write a copy of a survey, with its start now and short steps, to try the services out."""
    from ldpstream.rehearse import rehearse

    rehearse(survey_file, out, step_seconds, time.time())
    console.print(f"{out}: starts now, a step every {step_seconds} s", markup=False)
