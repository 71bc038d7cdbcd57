"""The command line. A user's mistake ends a command with one line and exit status 2."""

import signal
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext
from datetime import UTC
from functools import partial
from pathlib import Path
from threading import Event, Thread
from types import FrameType
from typing import TYPE_CHECKING, Annotated

import msgspec
import structlog
import typer

from ldpstream import (
    __version__,
    advice_commands,
    conformance_commands,
    history_commands,
    local_commands,
    serve_command,
    survey_commands,
    tables,
)
from ldpstream.arguments import DEMO_SURVEY, DataFile, FirstStep, Seed, Steps, SurveyFile, SurveyPaths, Users
from ldpstream.outputs import JsonFile, drawable, write_json
from ldpstream.plots import draw_ledger
from ldpstream.producers.people_file import open_data
from ldpstream.producers.population import Population
from ldpstream.producers.produce import produce_live
from ldpstream.producers.sinks import KafkaSink, Sink, SinkError
from ldpstream.producers.values import MarkovValues, ValueSource
from ldpstream.promise import cohort_line, promise
from ldpstream.rehearse import rehearse
from ldpstream.runtime.clock import now_ms
from ldpstream.runtime.logs import start_log
from ldpstream.runtime.settings import Settings, load_settings
from ldpstream.runtime.shutdown import TOLD_TO_END, end_within
from ldpstream.runtime.topics import ensure_topics
from ldpstream.runtime.waiting import Stopped, Unreachable, wait_for
from ldpstream.surveys import Survey, load_survey
from ldpstream.surveys.errors import UserError, did_you_mean
from ldpstream.terminal import console, fail, progress_bar, say, tell

if TYPE_CHECKING:  # the estimators load slowly: only commands that need them import them
    from ldpstream.demo import Demo
    from ldpstream.publishing.publication import Publication

app = typer.Typer(add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False)

STOP_S = 8.5  # longest time from the signal to the end of the estimator


def run(commands: typer.Typer = app) -> None:
    """Run a command line, with one line and exit status 2 for an error that the user can correct."""
    try:
        sys.exit(commands(standalone_mode=False))
    except typer.TyperException as error:
        fail(usage(error)) if error.format_message() else sys.exit(2)  # without arguments, Typer has shown the help
    except Stopped:
        sys.exit(0)
    except UserError as error:
        fail(str(error))
    except OSError as error:
        fail(f"{error.filename}: {error.strerror}" if error.filename else error.strerror or str(error))
    except KeyboardInterrupt:  # an interrupt outside the part that Typer handles
        sys.exit(130)


def usage(error: typer.TyperException) -> str:
    """Returns one line that says what is wrong with the command line, and where to read what is allowed."""
    context: typer.Context | None = getattr(error, "ctx", None)
    message = " ".join(error.format_message().split())
    if hasattr(error, "possibilities"):  # Typer's list of similar options ends in the middle of words
        wrong = getattr(error, "option_name", "")
        options = [name for parameter in (context.command.params if context else ()) for name in parameter.opts]
        message = f"no option {wrong}{did_you_mean(wrong, options)}"
    return message if context is None else f"{message.rstrip('.')} (see {context.command_path} --help)"


def values(survey: Survey, data: Path | None, first_step: int | None, users: int, steps: int, seed: int) -> ValueSource:
    """Returns people's true values, from the file if there is one, otherwise simulated."""
    if data is None:
        return MarkovValues(survey, users, steps, seed)
    return open_data(data, survey, first_step, steps, tell)


def ends_on_signal(within_s: float | None = None) -> Event:
    """Returns an event that SIGTERM or SIGINT sets. If the process still runs `within_s` seconds later, it is ended."""
    stop = Event()

    def handle(signum: int, frame: FrameType | None) -> None:
        stop.set()
        if within_s is not None:
            end_within(within_s)

    signal.signal(signal.SIGTERM, handle)
    signal.signal(signal.SIGINT, handle)
    return stop


def log_when_told(stop: Event) -> None:
    """Logs the end of the estimator once `stop` is set. A signal handler must not log: it may interrupt another line."""
    stop.wait()
    structlog.get_logger("ldpstream.estimator").info(TOLD_TO_END)


def show_version(asked: bool) -> None:
    """Show the version and exit, if `asked`."""
    if asked:
        console.print(f"ldpstream {__version__}", highlight=False)
        raise typer.Exit


@app.callback(help=__doc__)
def options(
    version: Annotated[bool, typer.Option("--version", callback=show_version, is_eager=True, help="show the version")] = False,
) -> None:
    """Options without a command."""


@app.command()
def demo(
    survey_file: Annotated[Path, typer.Option("--survey", help="survey file", show_default="the demo survey")] = DEMO_SURVEY,
    users: Users = 20_000,
    steps: Steps = 12,
    seed: Seed = 1,
    data: DataFile = None,
    first_step: FirstStep = None,
    json: JsonFile = None,
    page: Annotated[
        bool | None, typer.Option(help="serve the live page until Ctrl-C", show_default="on a terminal, without --json")
    ] = None,
) -> None:
    """Run the whole pipeline in one process: devices, log, count tables, estimates beside the truth."""
    from ldpstream.demo import Demo

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
def serve_demo(survey: Survey, pipeline: "Demo") -> Iterator[None]:
    """Serves the live page of a demo, with the true shares. Uses a free port if the configured port is taken, and says so."""
    from ldpstream.publishing.api.app import create_api  # only here and in the estimator: this module loads slowly
    from ldpstream.publishing.page.server import PageServer

    settings, service = load_settings(), pipeline.service
    api = create_api(survey, service.results, service.rejected, truth=partial(pipeline.truth.of, survey))
    try:
        server = PageServer(api, settings.page_host, settings.page_port)
    except OSError as error:
        server = PageServer(api, settings.page_host, 0)
        tell(f"Port {settings.page_port}: {error.strerror}; the page uses port {server.port}.")
    console.print(f"The live page: {server.url}", markup=False)
    try:
        yield
    finally:
        server.close()


def run_demo(survey: Survey, source: ValueSource, pipeline: "Demo", json: Path | None) -> None:
    """Run the demo's pipeline with a progress bar, and show the last step."""
    with progress_bar() as bar:
        task = bar.add_task(f"{source.n_people:,} people, steps", total=source.n_steps)

        def seen(step: int, publications: "list[Publication]") -> None:
            bar.update(task, completed=min(step + 1, source.n_steps))

        pipeline.run(seen)
    history = pipeline.service.results.history()
    truths = [pipeline.truth.of(survey, p) for p in history]
    last = max(p.step for p in history)
    for publication, true in zip(history, truths, strict=True):
        if publication.step == last and publication.cohort is None:
            console.print(tables.histogram_table(survey, publication, true))
    for line in tables.cohort_lines(survey, [p for p in history if p.step == last and p.span == "window"]):
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    sent = sum(p.reports for p in history if p.span == "step" and p.cohort is None)
    console.print(f"{sent:,} reports counted in {last + 1} steps; rejected: {sum(pipeline.service.rejected().values())}.")
    write_json(json, tables.as_json(survey, history, truths))


@app.command()
def check(survey_file: SurveyFile, json: JsonFile = None) -> None:
    """Validate a survey, and print its promise to a participant in plain words."""
    survey = load_survey(survey_file)
    lines = promise(survey)
    console.print("\n".join(lines), markup=False, highlight=False, soft_wrap=True)
    write_json(json, {"survey": survey.name, "fingerprint": survey.fingerprint.hex(), "promise": lines})


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
    json: JsonFile = None,
) -> None:
    """Print the privacy loss of t reports, for every attribute and level."""
    survey = load_survey(survey_file)
    if (horizon is None) != (budget is None):
        fail("--horizon and --budget must be given together")
    rows, solved = tables.ledger_rows(survey), []
    for table in tables.ledger_tables(rows):
        console.print(table)
    console.print("Privacy loss in nats. Same value: ε_t, at most ε∞. Any values: between any two value sequences.")
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
    if plot is not None:
        draw_ledger(survey, plot)
    write_json(json, {"survey": survey.name, "ledger": rows, "solved": solved})


@app.command(name="rehearse")
def rehearse_command(
    survey_file: SurveyFile,
    out: Annotated[Path, typer.Argument(metavar="OUT", help="the file to write")],
    step_seconds: Annotated[int, typer.Option(min=1, max=86_400, help="length of a step in the rehearsal, in seconds")] = 5,
) -> None:
    """Write a copy of a survey, with its start now and short steps, to try the services out."""
    rehearse(survey_file, out, step_seconds, time.time())
    console.print(f"{out}: starts now, a step every {step_seconds} s", markup=False)


@app.command()
def produce(
    survey_file: SurveyFile,
    users: Users = 20_000,
    steps: Steps = 12,
    seed: Seed = 1,
    data: DataFile = None,
    first_step: FirstStep = None,
    json: JsonFile = None,
    gateway: Annotated[str | None, typer.Option(metavar="URL", help="report through this gateway, not to Kafka")] = None,
) -> None:
    """Simulate devices that report to Kafka in real time, from the survey's current step on."""
    survey, settings = load_survey(survey_file), load_settings()
    source = values(survey, data, first_step, users, steps, seed)
    stop, answered = ends_on_signal(), []

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
        for step, truths in produce_live(survey, population, sink, now_ms, sleep, say):
            bar.advance(task)
            for (attribute, level, cohort), truth in truths.items():
                asked = survey.attributes[attribute]
                answered.append({
                    "attribute": asked.name, "level": asked.levels[level].name, "cohort": survey.cohort_name(cohort),
                    "step": step,
                    "reports": truth.reports, "truth": truth.truth.tolist(),
                })  # fmt: skip
    by = "broker" if gateway is None else "gateway"
    console.print(f"{sum(row['reports'] for row in answered):,} reports acknowledged by the {by}.")
    write_json(json, {"survey": survey.name, "fingerprint": survey.fingerprint.hex(), "produced": answered})


def await_kafka_sink(survey: Survey, settings: Settings, stop: Event) -> Sink:
    """Returns a sink to the survey's topic as soon as Kafka answers. Creates the topic if it is missing.

    Raises:
        Stopped: if `stop` is set before Kafka answers.
        TopicError: if Kafka refuses our requests, or the topic is unsuitable.
    """

    def ask() -> Sink:
        ensure_topics(settings, survey, "producer")
        return KafkaSink(settings, survey.reports_topic)

    def unreachable(error: Exception) -> bool:
        return isinstance(error, Unreachable | SinkError)  # a refusal is a TopicError, raised by the check of the topics

    return wait_for(f"Kafka at {settings.kafka}", ask, stop.wait, say, unreachable)


def gateway_sink(url: str, settings: Settings) -> Sink:
    """Returns a sink to the gateway, with the first token of the tokens file."""
    from ldpstream.producers.gateway.client import GatewaySink  # only here and in the gateway: these modules load slowly
    from ldpstream.producers.gateway.gateway_process import read_tokens

    return GatewaySink(url, next(iter(read_tokens(settings)), None))


@app.command()
def agent(surveys: SurveyPaths) -> None:
    """Run a counting agent: a Faust worker from Kafka's reports to count tables in Redis. Several agents share the work."""
    settings = load_settings()
    start_log(settings.log_level)
    from ldpstream.runtime.survey_watch import SurveyWatch  # only in the services: it registers their metric

    watch = SurveyWatch(surveys)
    from ldpstream.agents.app import run as run_agent  # only here: this module sets up an event loop for Faust

    run_agent(watch, settings)


@app.command()
def estimate(
    survey_files: SurveyPaths,
    until: Annotated[int | None, typer.Option(min=0, help="end when all steps up to this one are published complete")] = None,
    json: JsonFile = None,
) -> None:
    """Run the estimator: it publishes histograms and privacy loss to Kafka, Redis and Prometheus when steps close.

    With several files or a folder, one process serves all surveys, and follows changes of the files."""
    settings = load_settings()
    start_log(settings.log_level)
    from ldpstream.runtime.survey_keeper import TopicKeeper
    from ldpstream.runtime.survey_watch import SurveyWatch

    watch = SurveyWatch(survey_files)
    if watch.only_file is None and (until is not None or json is not None):
        fail("--until and --json need exactly one survey file")
    from ldpstream.publishing.estimator_process import serve

    def seen(publication: "Publication") -> None:
        if until is not None and publication.span == "window" and publication.cohort is None:
            (found,) = watch.surveys.values()
            console.print(tables.histogram_table(found.survey, publication, None))

    # The estimator may wait long for an unreachable Kafka. Ending the process is safe: the next estimator estimates the steps
    # that this estimator has not saved.
    stop = ends_on_signal(STOP_S if json is None else None)
    Thread(target=log_when_told, args=(stop,), daemon=True).start()
    check = partial(TopicKeeper(settings, watch).check_topics, role="estimator")
    history = serve(watch, settings, stop, seen, check, until)
    if json is not None:
        (found,) = watch.surveys.values()
        write_json(json, tables.as_json(found.survey, history, None))


@app.command()
def gateway(survey_files: SurveyPaths) -> None:
    """Run the HTTP gateway: it accepts envelopes by POST /v1/reports and answers after Kafka has acknowledged them.

    With several files or a folder, one process serves all surveys, and follows changes of the files."""
    settings = load_settings()
    start_log(settings.log_level)
    from ldpstream.runtime.survey_keeper import TopicKeeper
    from ldpstream.runtime.survey_watch import SurveyWatch

    watch = SurveyWatch(survey_files)
    from ldpstream.producers.gateway.gateway_process import serve as serve_gateway  # only here: this module loads slowly

    serve_gateway(watch, settings, partial(TopicKeeper(settings, watch).check_topics, role="gateway"))


app.add_typer(serve_command.app)
app.add_typer(local_commands.app)
app.add_typer(advice_commands.app)
app.add_typer(survey_commands.app)
app.add_typer(history_commands.app)
app.add_typer(conformance_commands.app)
