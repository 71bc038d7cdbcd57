"""The command `demo`: the whole pipeline in one process."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ldpstream import surveys
from ldpstream.commands.arguments import SAMPLES, DataFile, Missing, Seed, Steps, Users, values
from ldpstream.mechanisms.wording import plural
from ldpstream.output.outputs import JsonFile, write_json
from ldpstream.output.terminal import console, progress_bar, tell
from ldpstream.services.signals import ends_on_signal

if TYPE_CHECKING:  # the estimators load slowly: only commands that need them import them
    from ldpstream.producers.values import ValueSource
    from ldpstream.publishing.estimates.publication import Publication
    from ldpstream.services.demo import Demo
    from ldpstream.surveys import Survey

app = typer.Typer()
TRAVEL = SAMPLES / "travel.toml"


@app.command()
def demo(
    survey_file: Annotated[Path, typer.Option("--survey", help="survey file", show_default="the sample travel")] = TRAVEL,
    users: Users = 20_000,
    steps: Steps = 16,
    seed: Seed = 1,
    data: DataFile = None,
    missing: Missing = None,
    json: JsonFile = None,
    page: Annotated[
        bool | None, typer.Option(help="serve the live page until Ctrl-C", show_default="on a terminal, without --json")
    ] = None,
) -> None:
    """Run the whole pipeline in one process: devices, log, count tables, estimates beside the truth."""
    from ldpstream.services.demo import Demo

    survey = surveys.load_survey(survey_file)
    source = values(survey, data, users, steps, seed, missing)
    pipeline = Demo(survey, source, seed)
    if page is None:
        page = sys.stdout.isatty() and json is None
    with serve_demo(survey, pipeline) if page else nullcontext():
        run_demo(survey, source, pipeline, json)
        if page:
            console.print("The page stays until Ctrl-C.")
            ends_on_signal().wait()


@contextmanager
def serve_demo(survey: "Survey", pipeline: "Demo") -> Iterator[None]:
    """Uses a free port if the configured port is taken, and says so."""
    from ldpstream.publishing.answers.responses import Served
    from ldpstream.publishing.api.app import create_api  # only here and in the estimator: this module loads slowly
    from ldpstream.publishing.page.server import PageServer
    from ldpstream.runtime.settings import SettingsError, load_settings

    settings, service = load_settings(), pipeline.service
    api = create_api(Served(survey, service.results, service.rejected, truth=pipeline.truth.of))
    try:
        server = PageServer(api, settings.page_host, settings.page_port)
    except SettingsError as error:
        server = PageServer(api, settings.page_host, 0)
        tell(f"{error}. The page uses port {server.port}.")
    console.print(f"The live page: {server.url}", markup=False)
    try:
        yield
    finally:
        server.close()


def run_demo(survey: "Survey", source: "ValueSource", pipeline: "Demo", json: Path | None) -> None:
    from ldpstream.output import tables

    with progress_bar() as bar:
        task = bar.add_task(f"{plural(source.n_people, 'person', 'people')}, steps", total=source.n_steps)

        def seen(step: int, publications: "list[Publication]") -> None:
            bar.update(task, completed=min(step + 1, source.n_steps))

        pipeline.run(seen)
    history = pipeline.service.results.history()
    truths = [pipeline.truth.of(p) for p in history]
    last = max(p.step for p in history)
    for publication, true in zip(history, truths, strict=True):
        if (publication.step, publication.span, publication.cohort) == (last, "window", None):
            console.print(tables.histogram_table(survey, publication, true))
    for line in tables.cohort_lines(survey, [p for p in history if p.step == last and p.span == "window"]):
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    sent = sum(p.reports for p in history if p.span == "step" and p.cohort is None)
    rejected = sum(pipeline.service.rejected().values())
    console.print(f"{plural(sent, 'report')} counted in {plural(last + 1, 'step')}; rejected: {rejected}.")
    write_json(json, tables.as_json(survey, history, truths))
