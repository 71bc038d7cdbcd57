"""The command line. A user's mistake ends a command with one line and exit status 2."""

import sys
from typing import Annotated

import typer

from ldpstream.commands import advice, assessment, demo, promise, serve, service, signature, survey, trial
from ldpstream.output.terminal import console, fail
from ldpstream.runtime.errors import Stopped, exit_status
from ldpstream.surveys.errors import UserError

app = typer.Typer(add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False)


def run(commands: typer.Typer = app) -> None:
    """Runs a command line. A `UserError` gives one line and exit status 2; an error that may end by itself, 1."""
    try:
        sys.exit(commands(standalone_mode=False))
    except typer.TyperException as error:
        fail(usage(error)) if error.format_message() else sys.exit(2)  # without arguments, Typer has shown the help
    except Stopped:
        sys.exit(0)
    except ModuleNotFoundError as error:
        if error.name:  # a package of the service, which `__main__` names
            raise
        fail(str(error))  # an extra is not installed
    except UserError as error:
        fail(str(error), exit_status(error))
    except OSError as error:
        said = f"{error.filename}: {error.strerror}" if error.filename else error.strerror or str(error)
        fail(said, exit_status(error))
    except KeyboardInterrupt:  # an interrupt outside the part that Typer handles
        sys.exit(130)


def usage(error: typer.TyperException) -> str:
    context: typer.Context | None = getattr(error, "ctx", None)
    message = " ".join(error.format_message().split())
    return message if context is None else f"{message.rstrip('.')} (see {context.command_path} --help)"


def show_version(asked: bool) -> None:
    if asked:
        from ldpstream.runtime.versions import running_version  # only here: it may run git

        console.print(f"ldpstream {running_version()}", highlight=False)
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[bool, typer.Option("--version", callback=show_version, is_eager=True, help="show the version")] = False,
) -> None:
    """Statistics about many people, without collecting their true answers. COMMAND --help explains a command."""


for module in (demo, promise, assessment, service, serve, trial, advice, survey, signature):
    app.add_typer(module.app)
