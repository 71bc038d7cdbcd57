"""The command `export`, which copies estimates into files."""

from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Literal

import typer

from ldpstream.commands.arguments import SurveyFile
from ldpstream.mechanisms.wording import plural
from ldpstream.output.outputs import JsonFile, OutputError, write_json
from ldpstream.output.terminal import job_bar, tell

app = typer.Typer()
Format = Literal["parquet", "csv"]


@app.command(name="export")
def export_command(
    survey_file: SurveyFile,
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="folder of the files, one folder for each survey")],
    fmt: Annotated[
        Format | None, typer.Option("--format", help="format of the files", show_default="parquet, or as before")
    ] = None,
    data: Annotated[
        Path | None, typer.Option(metavar="DIR", help="data folder of `ldpstream serve`, in place of Kafka")
    ] = None,
    json: JsonFile = None,
) -> None:
    """Copy all estimates from Kafka, or from a data folder, into Parquet or CSV files. A repeated run adds what is new."""
    if find_spec("polars") is None:
        raise OutputError("export needs Polars: in your checkout, pip install '.[export]'")
    from ldpstream.publishing.history.export import export  # only here: these modules load slowly
    from ldpstream.runtime.settings import load_settings
    from ldpstream.surveys import load_survey

    survey, settings = load_survey(survey_file), load_settings()
    counted = "offsets" if data is None else "records"  # Kafka's offsets also count records that compaction has removed
    with job_bar() as bar:
        done = export(survey, settings, folder, fmt, lambda read, total: bar(read, total, counted), data)
    skipped = f"; {plural(done.skipped, 'record')} of another survey or version skipped" if done.skipped else ""
    tell(f"{plural(done.publications, 'estimate')} added to {plural(len(done.files), 'file')} in {folder}{skipped}")
    write_json(json, done)
