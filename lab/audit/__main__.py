"""Attacks the reports that the code emits, and prints a lower bound of ε beside each claimed ε.

python -m lab.audit [--mechanism NAME]…      exit status 1 if a bound exceeds its claim, or a broken mechanism is not detected
"""

from typing import Annotated

import msgspec
import typer

from lab.audit.audit import K, audit
from lab.audit.audit_tables import audit_tables, audit_verdict
from lab.audit.samplers import code_paths
from lab.audit.spaced import SPACED_SHARE
from lab.terminal import activity
from ldpstream.commands.cli import run
from ldpstream.mechanisms.registry import registered
from ldpstream.output.outputs import JsonFile, write_json
from ldpstream.output.terminal import console

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def audit_command(
    mechanism: Annotated[list[str] | None, typer.Option(help="mechanism to audit; repeatable", show_default="all")] = None,
    reports: Annotated[int, typer.Option(min=1000, max=10**7, help="number of vectorised reports of each value")] = 100_000,
    seed: Annotated[int, typer.Option(min=0, max=2**63, help="seed of the vectorised reports")] = 1,
    json: JsonFile = None,
) -> None:
    """Attack real reports, and print a lower bound of ε beside each claimed ε.

    Exit status 1 if a bound exceeds its claim, or if the attack does not find the loss of a mechanism broken on purpose.
    """
    names = list(registered()) if mechanism is None else mechanism
    for name in names:
        if name not in registered():
            raise typer.BadParameter(f"must be one of {', '.join(registered())}, got {name!r}", param_hint="--mechanism")
    with activity() as progress:
        result = audit(names, code_paths(reports, K), seed, progress, reports // SPACED_SHARE)
    for table in audit_tables(result):
        console.print(table)
    console.print(audit_verdict(result), highlight=False)
    write_json(json, {**msgspec.to_builtins(result), "passed": result.passed})
    if not result.passed:
        raise typer.Exit(1)


if __name__ == "__main__":
    run(app)
