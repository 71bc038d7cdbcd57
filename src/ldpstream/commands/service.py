"""The commands of the services: `agent`, `estimate`, `gateway` and its `relay-key`, and of simulated devices, `produce`."""

from contextlib import closing
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ldpstream.commands.arguments import DataFile, Missing, Seed, Steps, SurveyFile, SurveyPaths, Users, values
from ldpstream.mechanisms.wording import plural
from ldpstream.output.outputs import JsonFile, write_json
from ldpstream.output.terminal import console, progress_bar, say, tell
from ldpstream.services.signals import ends_on_signal

if TYPE_CHECKING:
    from ldpstream.runtime.settings import Settings
    from ldpstream.surveys.life.watch import SurveyWatch

app = typer.Typer()

STOP_S = 8.5  # longest time from the signal to the end of the estimator
PRODUCE_STOP_S = 1.0  # the same for `produce`


@app.command()
def produce(
    survey_file: SurveyFile,
    users: Users = 20_000,
    steps: Steps = 12,
    seed: Seed = 1,
    data: DataFile = None,
    missing: Missing = None,
    json: JsonFile = None,
    gateway: Annotated[str | None, typer.Option(metavar="URL", help="report through this gateway, not to Kafka")] = None,
    relay: Annotated[
        str | None,
        typer.Option(
            metavar="URL", help="send each report alone through this relay to the gateway, with the key of its relay keys file"
        ),
    ] = None,
) -> None:
    """Simulate devices that report to Kafka or to a gateway in real time, from the survey's current step on."""
    from ldpstream.producers.population import Population  # only here: these modules load slowly
    from ldpstream.producers.produce import ENVELOPE_BYTES, produce_live
    from ldpstream.runtime.clock import now_ms
    from ldpstream.runtime.settings import load_settings
    from ldpstream.services.sinks import sink_of
    from ldpstream.surveys import load_survey

    survey, settings = load_survey(survey_file), load_settings()
    source = values(survey, data, users, steps, seed, missing)
    answered: list[dict[str, Any]] = []

    def write_answers() -> None:
        write_json(json, {"survey": survey.name, "fingerprint": survey.fingerprint.hex(), "produced": answered})

    # between two steps the command ends by itself; while it sends or retries, the deadline ends it
    stop = ends_on_signal(PRODUCE_STOP_S, last_words=write_answers, late_status=lambda signum: 128 + signum)
    sink = sink_of(survey, settings, gateway, relay, stop.wait, say)
    population = Population(survey, source, seed)
    now = survey.step_at(now_ms())
    first = f"the people join at step {now}" if now >= 0 else "the people wait for it"
    start = f"{survey.start.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
    console.print(f"Step 0 of {survey.name} begins at {start}: {first}.", markup=False, soft_wrap=True)
    with closing(sink), progress_bar() as bar:
        task = bar.add_task("steps", total=source.n_steps)
        size = ENVELOPE_BYTES if relay is None else 1  # through a relay, each envelope has one report
        for step, panes in produce_live(survey, population, sink, now_ms, stop.wait, say, size):
            bar.advance(task)
            for pane in panes:
                asked = survey.attributes[pane.attribute]
                answered.append({
                    "attribute": asked.name, "level": asked.levels[pane.level].name, "cohort": survey.cohort_name(pane.cohort),
                    "step": step, "reports": len(pane.reports), "truth": pane.truth.tolist(),
                })  # fmt: skip
    by = "broker" if gateway is None else "gateway"
    reports = sum(row["reports"] for row in answered)
    console.print(f"{plural(reports, 'report')} acknowledged by the {by}.")
    write_answers()


def start(survey_files: list[Path]) -> "tuple[SurveyWatch, Settings]":
    """Starts the log of a service, and reads its survey files."""
    from ldpstream.runtime.logs import start_log  # only here: these modules load slowly
    from ldpstream.runtime.settings import load_settings
    from ldpstream.surveys.life.watch import SurveyWatch

    settings = load_settings()
    start_log(settings.log_level)
    return SurveyWatch(survey_files), settings


@app.command()
def agent(survey_files: SurveyPaths) -> None:
    """Run a counting agent: a Faust worker that counts Kafka's reports into tables in Redis. Several agents share the work."""
    watch, settings = start(survey_files)
    from ldpstream.agents.app import run as run_agent  # only here: this module sets up an event loop for Faust

    run_agent(watch, settings)


@app.command()
def estimate(survey_files: SurveyPaths) -> None:
    """Run the estimator: it publishes histograms and privacy loss to Kafka, Redis and Prometheus when steps close.

    With several files or a folder, one process serves all surveys, and follows changes of the files."""
    watch, settings = start(survey_files)
    import structlog  # only here: these modules load slowly

    from ldpstream.engines.kafka.topic_keeper import TopicKeeper
    from ldpstream.runtime.process import TOLD_TO_END
    from ldpstream.services.estimator_process import serve

    # The estimator may wait long for an unreachable Kafka. Ending the process is safe: the next estimator estimates the steps
    # that this estimator has not saved.
    log = structlog.get_logger("ldpstream.estimator")
    stop = ends_on_signal(STOP_S, lambda: log.info(TOLD_TO_END))
    serve(watch, settings, stop, partial(TopicKeeper(settings, watch).check_topics, role="estimator"))


@app.command()
def gateway(survey_files: SurveyPaths) -> None:
    """Run the HTTP gateway: it accepts envelopes by POST /v1/reports and answers after Kafka has acknowledged them.

    With several files or a folder, one process serves all surveys, and follows changes of the files."""
    watch, settings = start(survey_files)
    from ldpstream.engines.kafka.kafka_connection import kafka_logs  # only here: these modules load slowly
    from ldpstream.engines.kafka.topic_keeper import TopicKeeper
    from ldpstream.gateway.gateway_process import serve as serve_gateway

    keeper = TopicKeeper(settings, watch)
    check = partial(keeper.check_topics, role="gateway")
    serve_gateway(watch, settings, check, partial(kafka_logs, settings), counted=keeper.check_counted)


@app.command(name="relay-key")
def relay_key(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="the file of LDPSTREAM_GATEWAY_RELAY_KEYS_FILE")],
) -> None:
    """Make the key with which devices encrypt reports that they send through a relay, or replace it by a new key.

    Copy the file to all gateways; they notice the change. The file also keeps the former key until the next replacement. Put
    the printed key configuration into the apps."""
    from ldpstream.gateway.relay_keys import rotate, told

    for line in told(rotate(file, datetime.now(UTC))):
        tell(line)
