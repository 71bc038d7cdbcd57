"""The command line. Every mistake of a user ends in one line and exit status 2."""

import signal
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext
from datetime import UTC
from functools import partial
from logging.config import dictConfig
from pathlib import Path
from threading import Event
from types import FrameType
from typing import Annotated, Never

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from estimators.publishing.log_position import LogUnavailable
from estimators.publishing.publication import Publication
from experiments.advice.question import AdviceError
from experiments.datasets import DatasetError
from experiments.papers.reproduction import ReproductionError
from ldpstream import __version__, tables
from ldpstream.demo import Demo
from ldpstream.experiment_commands import add_experiments
from ldpstream.outputs import JsonFile, OutputError, write_json
from ldpstream.plots import PlotError, draw_ledger
from ldpstream.promise import promise
from ldpstream.rehearse import rehearse
from producers.population import Population
from producers.produce import produce_live
from producers.sinks import KafkaSink, Sink, SinkError
from producers.values import DataError, MarkovValues, ValueSource, load_values
from runtime.logs import logging_config
from runtime.settings import Settings, SettingsError, load_settings
from runtime.shutdown import end_within
from runtime.topics import TopicError, ensure_topics
from runtime.waiting import Away, Stopped, wait_for
from stores.count_store import StoreUnavailable
from surveys import Survey, SurveyError, load_survey

app = typer.Typer(add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False)
console = Console()

SurveyFile = Annotated[Path, typer.Argument(metavar="SURVEY", help="the survey file (TOML)")]

DataFile = Annotated[
    Path | None, typer.Option(metavar="FILE", help="true values: a CSV file of person, step, value (default: simulated)")
]
FirstStep = Annotated[int, typer.Option(help="the number that the data file gives to step 0")]
Users = Annotated[int, typer.Option(min=1, max=100_000_000, help="simulated users, without a data file")]
Steps = Annotated[int, typer.Option(min=1, max=1_000_000, help="time steps, without a data file")]
Seed = Annotated[int, typer.Option(min=0, help="seed of the simulated devices")]
STOP_S = 8.5  # from the signal to the end of an estimator
DEMO_SURVEY = Path(__file__).resolve().parent.parent / "surveys" / "samples" / "demo.toml"


EXPECTED = (
    SurveyError,
    SettingsError,
    OutputError,
    PlotError,
    DataError,
    SinkError,
    TopicError,
    StoreUnavailable,
    LogUnavailable,
    AdviceError,
    DatasetError,
    ReproductionError,
    OSError,
)


def run() -> None:
    """The command line, with one line and exit status 2 for what a user can mend."""
    try:
        app()
    except Stopped:
        sys.exit(0)
    except EXPECTED as error:
        fail(str(error))
    except KeyboardInterrupt:  # before or after what the library itself looks after
        sys.exit(130)


def say(message: str) -> None:
    """Write one line to standard error."""
    sys.stderr.write(f"ldpstream: {message}\n")
    sys.stderr.flush()


def fail(message: str) -> Never:
    """End with one line on standard error and exit status 2."""
    say(message)
    sys.exit(2)


def values(survey: Survey, data: Path | None, first_step: int, users: int, steps: int, seed: int) -> ValueSource:
    """People's true values: from the file, else simulated."""
    return MarkovValues(survey, users, steps, seed) if data is None else load_values(data, survey, first_step)


def progress_bar() -> Progress:
    """The progress bar of long runs, on standard error."""
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    return Progress(*columns, console=Console(stderr=True))


def ends_on_signal(within_s: float | None = None) -> Event:
    """An event that SIGTERM or SIGINT sets; if the process has not ended so many seconds later, it is ended."""
    stop = Event()

    def handle(signum: int, frame: FrameType | None) -> None:
        stop.set()
        if within_s is not None:
            end_within(within_s)

    signal.signal(signal.SIGTERM, handle)
    signal.signal(signal.SIGINT, handle)
    return stop


def show_version(asked: bool) -> None:
    """Show the version and end, if asked to."""
    if asked:
        console.print(f"ldpstream {__version__}", highlight=False)
        raise typer.Exit


@app.callback(help=__doc__)
def options(
    version: Annotated[bool, typer.Option("--version", callback=show_version, is_eager=True, help="show the version")] = False,
) -> None:
    """What can be asked without a command."""


@app.command()
def demo(
    survey_file: Annotated[Path, typer.Option("--survey", help="survey file", show_default="the demo survey")] = DEMO_SURVEY,
    users: Users = 20_000,
    steps: Steps = 12,
    seed: Seed = 1,
    data: DataFile = None,
    first_step: FirstStep = 0,
    json: JsonFile = None,
    page: Annotated[
        bool | None, typer.Option(help="serve the live page until Ctrl-C", show_default="on a terminal, without --json")
    ] = None,
) -> None:
    """The whole pipeline on this machine, nothing else needed: devices, log, count tables, estimates, beside the truth."""
    survey = load_survey(survey_file)
    source = values(survey, data, first_step, users, steps, seed)
    pipeline = Demo(survey, source, seed)
    if page is None:
        page = sys.stdout.isatty() and json is None
    with serve_demo(survey, pipeline) if page else nullcontext():
        run_demo(survey, source, pipeline, json)
        if page:
            console.print("The page stays until Ctrl-C.")
            ends_on_signal().wait()


@contextmanager
def serve_demo(survey: Survey, pipeline: Demo) -> Iterator[None]:
    """The live page of a demo, with the truth, on a free port if the usual one is taken."""
    from estimators.publishing.api import create_api  # only here and in the estimator: it takes long to load
    from estimators.publishing.page_server import PageServer

    settings, service = load_settings(), pipeline.service
    api = create_api(survey, service.results, service.rejected, truth=partial(pipeline.truth.of, survey))
    try:
        server = PageServer(api, settings.page_host, settings.page_port)
    except OSError:
        server = PageServer(api, settings.page_host, 0)
    console.print(f"The live page: {server.url}", markup=False)
    try:
        yield
    finally:
        server.close()


def run_demo(survey: Survey, source: ValueSource, pipeline: Demo, json: Path | None) -> None:
    """Run the demo's pipeline with a progress bar, and show the last step."""
    with progress_bar() as bar:
        task = bar.add_task(f"{source.n_people:,} people, steps", total=source.n_steps)

        def seen(step: int, publications: list[Publication]) -> None:
            bar.update(task, completed=min(step + 1, source.n_steps))

        pipeline.run(seen)
    history = pipeline.service.results.history()
    truths = [pipeline.truth.of(survey, p) for p in history]
    last = max(p.step for p in history)
    for publication, true in zip(history, truths, strict=True):
        if publication.step == last:
            console.print(tables.histogram_table(survey, publication, true))
    sent = sum(p.reports for p in history if p.span == "step")
    console.print(f"{sent:,} reports counted in {last + 1} steps; rejected: {sum(pipeline.service.rejected().values())}.")
    write_json(json, tables.as_json(survey, history, truths))


@app.command()
def check(survey_file: SurveyFile, json: JsonFile = None) -> None:
    """Validate a survey, and say in plain words what it promises to a participant."""
    survey = load_survey(survey_file)
    lines = promise(survey)
    console.print("\n".join(lines), markup=False, highlight=False, soft_wrap=True)
    write_json(json, {"survey": survey.name, "fingerprint": survey.fingerprint.hex(), "promise": lines})


@app.command()
def ledger(
    survey_file: SurveyFile,
    plot: Annotated[Path | None, typer.Option(metavar="FILE", help="also draw the curves (PNG, SVG or PDF)")] = None,
    horizon: Annotated[int | None, typer.Option(min=1, help="with --budget: so many reports …")] = None,
    budget: Annotated[float | None, typer.Option(help="… may cost so much, in nats: the largest eps_1 that allows it")] = None,
    json: JsonFile = None,
) -> None:
    """The privacy loss of t reports, for every attribute and level."""
    survey = load_survey(survey_file)
    if (horizon is None) != (budget is None):
        fail("--horizon and --budget belong together")
    rows, solved = tables.ledger_rows(survey), []
    for table in tables.ledger_tables(rows):
        console.print(table)
    console.print("Privacy loss in nats. Same value: ε_t, which stays below ε∞. Any values: between any two value sequences.")
    if not all(row["eps_sequence_exact"] for row in rows):
        console.print("* an upper bound; the other numbers of that column are exact")
    if horizon is not None and budget is not None:
        try:
            solved = tables.solved_rows(survey, horizon, budget)
        except ValueError as error:
            fail(str(error))
        console.print(tables.solved_table(survey, horizon, budget, solved))
    if plot is not None:
        draw_ledger(survey, plot)
    write_json(json, {"survey": survey.name, "ledger": rows, "solved": solved})


@app.command(name="rehearse")
def rehearse_command(
    survey_file: SurveyFile,
    out: Annotated[Path, typer.Argument(metavar="OUT", help="the file to write")],
    step_seconds: Annotated[int, typer.Option(min=1, max=86_400, help="length of a step in the rehearsal")] = 5,
) -> None:
    """Write a copy of a survey that starts now with short steps, to try the services out."""
    rehearse(survey_file, out, step_seconds, time.time())
    console.print(f"{out}: starts now, a step every {step_seconds} s", markup=False)


@app.command()
def produce(
    survey_file: SurveyFile,
    users: Users = 20_000,
    steps: Steps = 12,
    seed: Seed = 1,
    data: DataFile = None,
    first_step: FirstStep = 0,
    json: JsonFile = None,
    gateway: Annotated[str | None, typer.Option(metavar="URL", help="report through this gateway, not to Kafka")] = None,
) -> None:
    """Simulated devices that report to Kafka as the survey's steps go by, from the current one on."""
    survey, settings = load_survey(survey_file), load_settings()
    source = values(survey, data, first_step, users, steps, seed)
    stop, answered = ends_on_signal(), []

    def now_ms() -> int:
        return time.time_ns() // 10**6

    def sleep(seconds: float) -> bool:
        return stop.wait(seconds)

    sink = await_kafka_sink(survey, settings, stop) if gateway is None else gateway_sink(gateway, settings)
    population = Population(survey, source, seed)
    now = survey.step_at(now_ms())
    first = f"the people join at step {now}" if now >= 0 else "the people wait for it"
    start = f"{survey.start.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
    console.print(f"Step 0 of {survey.name} begins at {start}: {first}.", markup=False, soft_wrap=True)
    with closing(sink), progress_bar() as bar:
        task = bar.add_task("steps", total=source.n_steps)
        for step, truths in produce_live(survey, population, sink, now_ms, sleep):
            bar.advance(task)
            for (attribute, level), truth in truths.items():
                asked = survey.attributes[attribute]
                answered.append({
                    "attribute": asked.name, "level": asked.levels[level].name, "step": step,
                    "reports": truth.reports, "truth": truth.truth.tolist(),
                })  # fmt: skip
    by = "broker" if gateway is None else "gateway"
    console.print(f"{sum(row['reports'] for row in answered):,} reports acknowledged by the {by}.")
    write_json(json, {"survey": survey.name, "fingerprint": survey.fingerprint.hex(), "produced": answered})


def await_kafka_sink(survey: Survey, settings: Settings, stop: Event) -> Sink:
    """The survey's topic, made if there is none, as soon as Kafka answers.

    Raises:
        Stopped: if `stop` is set before.
        TopicError: if Kafka refuses us.
    """

    def ask() -> Sink:
        ensure_topics(settings, survey, "producer")
        return KafkaSink(settings, survey.reports_topic)

    def away(error: Exception) -> bool:
        return isinstance(error, Away | SinkError)  # whatever Kafka refuses, the check of the topics says

    return wait_for(f"Kafka at {settings.kafka}", ask, stop.wait, say, away)


def gateway_sink(url: str, settings: Settings) -> Sink:
    """A gateway, with the first token of the tokens file."""
    from producers.gateway.client import GatewaySink  # only here and in the gateway: they take long to load
    from producers.gateway.service import read_tokens

    return GatewaySink(url, next(iter(read_tokens(settings)), None))


@app.command()
def agent(survey_file: SurveyFile) -> None:
    """A counting agent: a Faust worker that folds Kafka's reports into count tables in Redis. Start as many as you like."""
    survey, settings = load_survey(survey_file), load_settings()
    from agents.app import run as run_agent  # only here: it sets up an event loop for Faust

    run_agent(survey, settings)


@app.command()
def estimate(
    survey_file: SurveyFile,
    until: Annotated[int | None, typer.Option(min=0, help="end when all steps up to this one are published complete")] = None,
    json: JsonFile = None,
) -> None:
    """The estimator: publishes histograms and privacy loss to Kafka, Redis and Prometheus as the steps close."""
    survey, settings = load_survey(survey_file), load_settings()
    dictConfig(logging_config(settings.log_level))
    from estimators.publishing.service import serve

    def seen(publication: Publication) -> None:
        if until is not None and publication.span == "window":
            console.print(tables.histogram_table(survey, publication, None))

    # with Kafka away it may wait for long; what is saved is saved, and what is not is estimated by the next one
    stop = ends_on_signal(STOP_S if json is None else None)
    history = serve(survey, settings, stop, seen, partial(ensure_topics, settings, survey, "estimator"), until)
    write_json(json, tables.as_json(survey, history, None))


@app.command()
def gateway(survey_file: SurveyFile) -> None:
    """The HTTP gateway: takes envelopes by POST /v1/reports, and answers once Kafka has them. Start as many as you like."""
    survey, settings = load_survey(survey_file), load_settings()
    dictConfig(logging_config(settings.log_level))
    from producers.gateway.service import serve as serve_gateway  # only here: it takes long to load

    check_topics = partial(ensure_topics, settings, survey, "producer")
    serve_gateway(survey, survey_file.read_text(encoding="utf-8"), settings, check_topics)


add_experiments(app, console, write_json)
