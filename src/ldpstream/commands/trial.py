"""The command `try`, which runs the service on this machine with simulated devices."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType
from typing import Annotated

import typer

from ldpstream import surveys
from ldpstream.commands.arguments import DEMO_SURVEY, DataFile, Missing, SurveyOrDemo, values
from ldpstream.output.terminal import tell

app = typer.Typer()
STEPS, SEED = 720, 1  # of the simulated devices: an hour, with steps of 5 s
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)  # SIGHUP: the terminal was closed


@app.command(name="try")
def try_command(
    survey_file: SurveyOrDemo = DEMO_SURVEY,
    users: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=100_000_000,
            help="number of simulated users (without a data file)",
            show_default="2000; 200 with a relay",
        ),
    ] = None,
    data: DataFile = None,
    missing: Missing = None,
    step_seconds: Annotated[int, typer.Option(min=1, max=86_400, help="length of a step, in seconds")] = 5,
    relay: Annotated[bool, typer.Option("--relay", help="require a relay, run one, and send all reports through it")] = False,
) -> None:
    """Run `serve` on this machine, and simulated devices that report to it.

    A survey with relay = "required" always runs with a relay.

    The ports are those of LDPSTREAM_PAGE_PORT and LDPSTREAM_GATEWAY_PORT; a taken port is replaced.
    """
    from ldpstream.runtime.settings import load_settings

    survey, settings = surveys.load_survey(survey_file), load_settings()
    relay |= survey.relay is not None
    users = users or (200 if relay else 2000)  # through a relay, each report is a request of its own
    source = values(survey, data, users, STEPS, SEED, missing)
    from ldpstream.services.trial.trial import Trial, ports_of

    with until_ctrl_c(), temporary_folder() as folder:
        Trial(survey_file, step_seconds, source, folder, ports_of(settings), tell, relay).run()


@contextmanager
def temporary_folder() -> Iterator[Path]:
    with TemporaryDirectory(prefix="ldpstream-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


@contextmanager
def until_ctrl_c() -> Iterator[None]:
    """Ends the block at the first of `ENDING`, as if the block had finished. Later signals have no effect."""
    told: list[int] = []

    def end(signum: int, frame: FrameType | None) -> None:
        if not told:  # a second exception would interrupt what the first one cleans up
            told.append(signum)
            raise KeyboardInterrupt

    for number in ENDING:
        signal.signal(number, end)
    with suppress(KeyboardInterrupt):
        yield
    tell("Everything has ended.")
