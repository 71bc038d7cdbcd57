"""Arguments and options that several commands have."""

from pathlib import Path
from typing import Annotated

import typer

DEMO_SURVEY = Path(__file__).resolve().parent.parent / "surveys" / "samples" / "demo.toml"

SurveyFile = Annotated[Path, typer.Argument(metavar="SURVEY", help="the survey file (TOML)")]
SurveyOrDemo = Annotated[Path, typer.Argument(metavar="[SURVEY]", help="the survey file", show_default="the demo survey")]
DataFile = Annotated[
    Path | None, typer.Option(metavar="FILE", help="true values: a CSV file of person, step, value (default: simulated)")
]
FirstStep = Annotated[int, typer.Option(help="number of step 0 in the data file")]
Users = Annotated[int, typer.Option(min=1, max=100_000_000, help="number of simulated users (without a data file)")]
Steps = Annotated[int, typer.Option(min=1, max=1_000_000, help="number of time steps (without a data file)")]
Seed = Annotated[int, typer.Option(min=0, help="seed of the simulated devices")]
