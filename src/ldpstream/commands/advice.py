"""The commands `advise` and `init`."""

import shlex
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from ldpstream.commands.arguments import Missing, missing_words
from ldpstream.mechanisms.wording import plural
from ldpstream.output.outputs import JsonFile, OutputError, writable, write_json, write_output
from ldpstream.output.terminal import console, tell

app = typer.Typer()
LEAST = 10  # a usual threshold of disclosure control


@app.command(name="advise")
def advise_command(
    k: Annotated[int, typer.Option(help="number of values")],
    people: Annotated[int, typer.Option(help="number of people who answer")],
    eps: Annotated[float | None, typer.Option(help="loss of each report, in nats (one-time mechanisms)")] = None,
    every_steps: Annotated[int, typer.Option(help="with --eps: a device reports once in this many steps")] = 1,
    eps_inf: Annotated[float | None, typer.Option(help="loss of any number of reports, in nats (memoized)")] = None,
    eps_1: Annotated[float | None, typer.Option(help="loss of one report, in nats", show_default="half of eps_inf")] = None,
    steps: Annotated[int, typer.Option(help="number of steps of the longest span")] = 365,
    choices: Annotated[int | None, typer.Option(help="several answers: the largest number of values of a person")] = None,
    numbers: Annotated[bool, typer.Option("--numbers", help="the values are bins of numbers, of equal width")] = False,
    json: JsonFile = None,
) -> None:
    """Compare the mechanisms for a question: exact errors, chances of a right guess, weight of a false report, bytes."""
    from ldpstream.output.advice_tables import as_json, option_table, reasons, stanza
    from ldpstream.planning.advise import Question, advise

    question = Question(
        k=k, people=people, eps=eps, every_steps=every_steps, eps_inf=eps_inf, eps_1=eps_1, steps=steps,
        choices=choices, numbers=numbers,
    )  # fmt: skip
    advice = advise(question)
    console.print(option_table(advice))
    for line in reasons(advice):
        console.print(line, markup=False, highlight=False)
    console.print("\n" + stanza(advice), markup=False, highlight=False, soft_wrap=True)
    write_json(json, as_json(advice))


def _names(text: str | None) -> list[str]:
    return [] if text is None else [name.strip() for name in text.split(",") if name.strip()]


@app.command(name="init")
def init_command(
    sample: Annotated[
        Path, typer.Option("--from", metavar="FILE", help="a CSV file with a header and one row for each person")
    ],
    out: Annotated[
        Path, typer.Option("-o", "--out", metavar="FILE", callback=writable, help="the survey file to write")
    ] = Path("survey.toml"),
    columns: Annotated[
        str | None, typer.Option(metavar="NAME,…", help="ask only for these columns", show_default="all suitable")
    ] = None,
    missing: Missing = None,
    eps_inf: Annotated[
        float | None, typer.Option(help="loss of any number of reports of an unchanged value, in nats", show_default="2")
    ] = None,
    eps: Annotated[float | None, typer.Option(help="for values that change: loss of a report, one in 8 days, in nats")] = None,
    least: Annotated[
        int, typer.Option(min=2, help="list only values that at least this number of people in the sample share")
    ] = LEAST,
) -> None:
    """Propose a survey for a table of people: which columns to ask for, their values or bins, and a privacy level for each."""
    from ldpstream.output import tables
    from ldpstream.planning.proposal import PROMISES, notes, propose_survey
    from ldpstream.producers.table_file import attribute_name  # loads NumPy

    if out.is_file():
        raise OutputError(f"{out}: exists already; give another file with -o")
    today = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    name = (attribute_name(sample.stem) if sample.is_file() else "") or "survey"
    if eps is None and eps_inf is None:
        eps_inf = 2.0
    found = propose_survey(
        sample, name, today, eps=eps, eps_inf=eps_inf, least=least, only=_names(columns),
        missing=missing_words(missing)
    )  # fmt: skip
    write_output(out, found.text)
    console.print(tables.proposal_table(found))
    for line in notes(found):
        tell(line)
    tell(f"{out}: {plural(len(found.asked), 'attribute')}. A survey is public: read it before you publish it.")
    tell(f"The attributes' names come from line 1 of {sample}: check that this line is a header and not a person's answers.")
    tell(f"The survey lists only values that at least {least} people of the sample share (--least).")
    tell(f"{PROMISES[eps is None]}.")
    tell("Type next:\n")
    file_name, data = shlex.quote(str(out)), shlex.quote(str(sample)) if sample.is_file() else "FILE"  # a pipe is empty now
    data += "" if missing is None else f" --missing {shlex.quote(missing)}"
    checks = (f"check {file_name}", f"check {file_name} --people {found.n_people}")
    for command in (*checks, f"demo --survey {file_name} --data {data}", f"try {file_name} --data {data}"):
        tell(f"    ldpstream {command}")
