"""The commands `serve`, `backup`, `move` and `export`: the service on one machine, and copies of its data and estimates."""

from functools import partial
from importlib.util import find_spec
from pathlib import Path
from socket import gethostname
from typing import TYPE_CHECKING, Annotated

import typer

from ldpstream.commands.arguments import SurveyFile, SurveyPaths
from ldpstream.mechanisms.wording import plural
from ldpstream.output.outputs import JsonFile, OutputError, write_json
from ldpstream.output.terminal import console, say, tell

if TYPE_CHECKING:
    from ldpstream.runtime.settings import Settings

app = typer.Typer()

Data = Annotated[Path, typer.Option(metavar="DIR", help="folder of all data; created if missing")]


@app.command()
def serve(surveys: SurveyPaths, data: Data = Path("ldpstream-data")) -> None:
    """Run the whole service on this machine, in one process: gateway, counting, estimates, page and API.

    It needs neither Kafka nor Redis. With several files or a folder it serves all surveys, and follows changes of the files."""
    from ldpstream.runtime.logs import start_log  # only here: these modules load slowly
    from ldpstream.runtime.settings import load_settings

    settings = load_settings()
    start_log(settings.log_level)
    from ldpstream.services.process import serve as serve_surveys

    serve_surveys(surveys, settings, data, partial(say, _first_line(settings, data)))


def _first_line(settings: "Settings", data: Path) -> str:
    scheme = "http" if settings.gateway_tls_cert is None else "https"
    gateway = f"{scheme}://{_reached(settings.gateway_host)}:{settings.gateway_port}"
    page = (
        f"the page is http://{_reached(settings.page_host)}:{settings.page_port}/" if settings.page_port else "there is no page"
    )
    return f"Devices report to {gateway}, {page}, the data are in {data.absolute()}."


def _reached(host: str) -> str:
    return gethostname() if host in ("0.0.0.0", "::") else f"[{host}]" if ":" in host else host


@app.command()
def backup(
    out: Annotated[Path, typer.Argument(metavar="OUT", help="the file to write; it must not exist")],
    data: Annotated[Path, typer.Option(metavar="DIR", help="data folder of `serve`")] = Path("ldpstream-data"),
) -> None:
    """Copy the data of `serve` to one file, also while it runs."""
    from ldpstream.engines.folder.backup import backup as copy
    from ldpstream.engines.folder.data_folder import FILE

    copy(data / FILE, out)
    console.print(f"{out}: {out.stat().st_size:,} bytes", markup=False)


@app.command()
def move(
    data: Annotated[Path, typer.Option(metavar="DIR", help="data folder of `serve`, which must have ended")] = Path(
        "ldpstream-data"
    ),
) -> None:
    """Move the data of `serve` to Kafka and Redis, for the services. The move cannot be undone.

    The servers are those of LDPSTREAM_KAFKA and LDPSTREAM_REDIS. If the command fails, run it again."""
    from ldpstream.runtime.settings import load_settings
    from ldpstream.services.move import move as move_data

    for one in move_data(data, load_settings()):
        tables = plural(one.open_tables, "table of open steps", "tables of open steps")
        keys, publications = plural(one.report_keys, "report key"), plural(one.publications, "publication")
        console.print(f"{one.survey}: {tables}, {keys}, {publications}", markup=False)
    console.print("The data were moved. Start the services at the address to which devices report.", markup=False)


@app.command(name="export")
def export_command(
    survey_file: SurveyFile,
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="folder of the files")],
    data: Annotated[
        Path | None, typer.Option(metavar="DIR", help="data folder of `ldpstream serve`, in place of Kafka")
    ] = None,
    json: JsonFile = None,
) -> None:
    """Copy all estimates from Kafka, or from a data folder, into Parquet files. A repeated run adds what is new."""
    if find_spec("polars") is None:
        raise OutputError("export needs Polars: in your checkout, pip install '.[export]'")
    from ldpstream.publishing.history.export import export  # only here: these modules load slowly
    from ldpstream.runtime.settings import load_settings
    from ldpstream.surveys import load_survey

    survey, settings = load_survey(survey_file), load_settings()
    done = export(survey, settings, folder, data)
    skipped = f"; {plural(done.skipped, 'record')} of another survey or version skipped" if done.skipped else ""
    tell(f"{plural(done.publications, 'estimate')} in {plural(len(done.files), 'file')} of {folder}{skipped}")
    write_json(json, done)
