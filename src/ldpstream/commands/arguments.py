"""Arguments and options that several commands have."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ldpstream import surveys
from ldpstream.output.terminal import tell

if TYPE_CHECKING:
    from ldpstream.producers.values import ValueSource
    from ldpstream.surveys import Survey

SAMPLES = Path(surveys.__file__).parent / "samples"
DEMO_SURVEY = SAMPLES / "demo.toml"

SurveyFile = Annotated[Path, typer.Argument(metavar="SURVEY", help="the survey file (TOML)")]
SurveyPaths = Annotated[
    list[Path], typer.Argument(metavar="SURVEY...", help="survey files (TOML), or folders of survey files that may change")
]
SurveyOrDemo = Annotated[Path, typer.Argument(metavar="[SURVEY]", help="the survey file", show_default="the sample demo")]
DataFile = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="true values, a CSV file: one row for each person, or rows of person, step, value",
        show_default="simulated",
    ),
]
Missing = Annotated[
    str | None,
    typer.Option(
        metavar="WORD,…", help="words for no answer in a file, beside empty cells", show_default="NA, NULL, None, - and others"
    ),
]
Users = Annotated[int, typer.Option(min=1, max=100_000_000, help="number of simulated users (without a data file)")]
Steps = Annotated[int, typer.Option(min=1, max=1_000_000, help="number of time steps (without a data file of steps)")]
Seed = Annotated[int, typer.Option(min=0, help="seed of the simulated devices")]


def values(survey: "Survey", data: Path | None, users: int, steps: int, seed: int, missing: str | None) -> "ValueSource":
    from ldpstream.producers.people_file import read_people  # only here: NumPy loads slowly, and the help needs this module
    from ldpstream.producers.usage import UsageValues
    from ldpstream.producers.values import MarkovValues

    if data is None:
        recipes = any(attribute.recipe for attribute in survey.attributes)
        return (UsageValues if recipes else MarkovValues)(survey, users, steps, seed)
    return read_people(data, survey, steps, tell, missing_words(missing))


def missing_words(text: str | None) -> Sequence[str]:
    """The words of the option `--missing`."""
    from ldpstream.producers.table_file import MISSING

    return MISSING if text is None else text.split(",")
