"""The commands `advise` and `init`."""

import shlex
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from ldpstream.arguments import Missing, missing_words
from ldpstream.mechanisms.wording import plural
from ldpstream.outputs import JsonFile, OutputError, drawable, writable, write_json, write_output
from ldpstream.terminal import console, job_bar, show_table, tell

if TYPE_CHECKING:
    from ldpstream.advice.question import Question
    from ldpstream.mechanisms.arguments import FloatArray

app = typer.Typer()
LEAST = 10  # a usual threshold of disclosure control


@app.command(name="advise")
def advise_command(
    n: Annotated[int, typer.Option(help="number of people who report at a step")],
    k: Annotated[int | None, typer.Option(help="number of values", show_default="the sample's")] = None,
    choices: Annotated[
        str | None, typer.Option(metavar="M|any", help="several answers: the largest number of values of a person")
    ] = None,
    limits: Annotated[
        tuple[float, float] | None, typer.Option("--range", metavar="LOW HIGH", help="numbers: the ends of the bins")
    ] = None,
    target: Annotated[
        str | None, typer.Option("--for", help="numbers: mean, percentiles or histogram", show_default="histogram")
    ] = None,
    eps: Annotated[float | None, typer.Option(help="loss of each report, in nats (one-time mechanisms)")] = None,
    eps_inf: Annotated[float | None, typer.Option(help="loss of any number of reports, in nats (memoized)")] = None,
    eps_1: Annotated[float | None, typer.Option(help="loss of one report, in nats", show_default="half of eps_inf")] = None,
    horizon: Annotated[int, typer.Option(help="number of reports whose loss is shown")] = 365,
    budget: Annotated[float | None, typer.Option(help="in place of eps_1: limit for the horizon's reports, in nats")] = None,
    metric: Annotated[str, typer.Option(help="mse, mae, l1, l2, kl or emd (values on a line)")] = "mse",
    max_bytes: Annotated[int | None, typer.Option(help="largest size of a report, without its envelope")] = None,
    sample: Annotated[
        Path | None, typer.Option(metavar="FILE", help="one value per line, or CSV", show_default="five shapes")
    ] = None,
    column: Annotated[str | None, typer.Option(help="column of the values, if the sample is a CSV file")] = None,
    missing: Missing = None,
    name: Annotated[str, typer.Option(help="name of the attribute in the survey")] = "value",
    repeats: Annotated[
        int | None, typer.Option(help="repetitions for each distribution", show_default="100, for numbers 20")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, max=2**63, help="seed of all randomness")] = 1,
    picture: Annotated[
        Path | None, typer.Option(metavar="FILE", callback=drawable, help="also draw errors and losses (PNG, SVG or PDF)")
    ] = None,
    json: JsonFile = None,
) -> None:
    """Find the best mechanism, and the estimator or the number of bins: by exact variance, then by simulation."""
    from ldpstream.advice import advice_tables
    from ldpstream.advice.advise import advise, check_attribute, check_runs
    from ldpstream.advice.question import AdviceError, Question
    from ldpstream.advice.sample_file import read_numbers, read_sample, read_sets
    from ldpstream.plots import draw_panels
    from ldpstream.surveys.questions import ANY

    if column is not None and sample is None:
        raise AdviceError("--column needs --sample")
    runs = (100 if limits is None else 20) if repeats is None else repeats
    check_runs(runs, seed)
    asked = partial(Question, n=n, eps=eps, eps_inf=eps_inf, eps_1=eps_1, horizon=horizon, budget=budget, max_bytes=max_bytes)
    if limits is not None:
        if k is not None or choices is not None or metric != "mse" or picture is not None:
            raise AdviceError("--range is for numbers, which have no --k, --choices, --metric and --picture")
        numbers = None if sample is None else partial(read_numbers, sample, column, missing_words(missing), tell)
        _advise_numbers(asked, limits, "histogram" if target is None else target, numbers, name, runs, seed, json)
        return
    if target is not None:
        raise AdviceError("--for is for numbers: give --range LOW HIGH")
    most = _choices(choices)
    counts, labels = None, None
    if sample is not None:
        read = partial(read_sample, k=k) if choices is None else partial(read_sets, k=k, choices=most)
        counts, labels = read(sample, column, missing=missing_words(missing), tell=tell)
    if labels is not None and metric == "emd":
        raise AdviceError("emd needs values on a line: use numbers in the sample, because labels have no order")
    size = k if counts is None else k or len(labels or counts)
    if size is None:
        raise AdviceError("give --k, or a --sample that determines it")
    question = asked(k=size, metric=metric, choices=size if choices == ANY else most)
    known = labels if labels is not None and len(labels) == size else None
    check_attribute(question, name, known)
    with job_bar() as progress:
        advice = advise(question, counts, labels=known, repeats=runs, seed=seed, seen=progress)
    survey, why = advice_tables.stanza(advice, name, known), advice_tables.reasons(advice)
    show_table(advice_tables.candidate_table(advice))
    show_table(advice_tables.ranking_table(advice), kept=2)
    if advice.promises:
        show_table(advice_tables.promise_table(advice))
    for line in why:
        console.print(line, markup=False, highlight=False)
    console.print("\n" + survey, markup=False, highlight=False, soft_wrap=True)
    if picture is not None:
        draw_panels(advice_tables.picture(advice), advice_tables.title(advice), picture)
    write_json(json, {**msgspec.to_builtins(advice), "reasons": why, "survey": survey})


def _advise_numbers(
    asked: Callable[..., "Question"],
    limits: tuple[float, float],
    target: str,
    read: "Callable[[], FloatArray] | None",
    name: str,
    repeats: int,
    seed: int,
    json: Path | None,
) -> None:
    from ldpstream.advice import number_tables
    from ldpstream.advice.advise import check_attribute
    from ldpstream.advice.numbers import BINS, advise_numbers, check_target, even_bins

    check_target(target)
    edges = even_bins(*limits)
    question = asked(k=BINS[0], numbers=True)
    check_attribute(question, name, None)
    numbers = None if read is None else read()
    with job_bar() as progress:
        advice = advise_numbers(question, edges, target, numbers, repeats=repeats, seed=seed, seen=progress)
    survey, why = number_tables.stanza(advice, name), number_tables.reasons(advice)
    show_table(number_tables.ranking_table(advice), kept=2)
    for line in why:
        console.print(line, markup=False, highlight=False)
    console.print("\n" + survey, markup=False, highlight=False, soft_wrap=True)
    write_json(json, {**msgspec.to_builtins(advice), "reasons": why, "survey": survey})


def _choices(text: str | None) -> int | None:
    from ldpstream.surveys.questions import ANY

    if text is None or text == ANY:
        return None
    if not text.isascii() or not text.isdigit() or len(text) > 9:
        raise typer.BadParameter(f'must be a whole number or "{ANY}", got {text!r}', param_hint="--choices")
    return int(text)


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
    drop: Annotated[
        str | None, typer.Option(metavar="NAME,…", help="do not ask for these columns", show_default="none")
    ] = None,
    sets: Annotated[
        str | None, typer.Option(metavar="NAME,…", help="columns with several answers (a;b)", show_default="recognised")
    ] = None,
    missing: Missing = None,
    eps_inf: Annotated[
        float | None, typer.Option(help="loss of any number of reports of an unchanged value, in nats", show_default="2")
    ] = None,
    eps: Annotated[
        float | None, typer.Option(help="for values that change: loss of a report, one in 24 steps, in nats")
    ] = None,
    least: Annotated[
        int, typer.Option(min=2, help="list only values that at least this number of people in the sample share")
    ] = LEAST,
    n: Annotated[int | None, typer.Option(min=2, help="number of devices expected", show_default="the sample's people")] = None,
    seed: Annotated[int, typer.Option(min=0, max=2**63, help="seed of all randomness")] = 1,
) -> None:
    """Propose a survey for a table of people: which columns to ask for, their values or bins, and a privacy level for each."""
    from ldpstream import tables
    from ldpstream.advice.proposal import PROMISES, notes, plan_survey, propose_survey
    from ldpstream.forecast_tables import growth_table
    from ldpstream.producers.table_file import attribute_name  # loads NumPy

    if out.is_file():
        raise OutputError(f"{out}: exists already; give another file with -o")
    today = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    name = (attribute_name(sample.stem) if sample.is_file() else "") or "survey"
    if eps is None and eps_inf is None:
        eps_inf = 2.0
    plan = plan_survey(
        sample, eps=eps, eps_inf=eps_inf, least=least, n=n, only=_names(columns), drop=_names(drop), several=_names(sets),
        missing=missing_words(missing), tell=tell,
    )  # fmt: skip
    with job_bar() as progress:
        found = propose_survey(plan, name, today, least=least, seed=seed, seen=progress)
    write_output(out, found.text)
    show_table(tables.proposal_table(plan, found))
    show_table(growth_table(found.survey, n or plan.n_people))
    for line in notes(plan, found):
        tell(line)
    tell(f"{out}: {plural(len(found.asked), 'attribute')}. A survey is public: read it before you publish it.")
    tell(f"The attributes' names come from line 1 of {sample}: check that this line is a header and not a person's answers.")
    tell(f"The survey lists only values that at least {least} people of the sample share (--least).")
    tell(f"{PROMISES[eps is None]}.")
    tell("Type next:\n")
    file_name, data = shlex.quote(str(out)), shlex.quote(str(sample)) if sample.is_file() else "FILE"  # a pipe is empty now
    data += "" if missing is None else f" --missing {shlex.quote(missing)}"
    checks = (f"check {file_name}", f"check {file_name} --people {n or plan.n_people}")
    for command in (*checks, f"demo --survey {file_name} --data {data}", f"try {file_name} --data {data}"):
        tell(f"    ldpstream {command}")
