"""Reproduces tables and figures of the papers.

python -m lab.papers [NAME]…
"""

from pathlib import Path
from typing import Annotated

import typer

from deploy.local.cache import cache_dir
from lab.panels import draw_panels
from lab.papers import allomfree, free_will, ibu_mi, ldp3
from lab.papers.reproduction import Plan, Target, reproduce
from lab.papers.reproduction_tables import document, sentences, table
from lab.terminal import job_bar
from ldpstream.commands.cli import run
from ldpstream.output.outputs import JsonFile, write_json
from ldpstream.output.terminal import console

TARGETS: tuple[Target, ...] = (*ibu_mi.TARGETS, *ldp3.TARGETS, *free_will.TARGETS, *allomfree.TARGETS)
app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def reproduce_command(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME]…", help="names of tables and figures", show_default="all")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="small parts only, in under three minutes")] = False,
    best: Annotated[bool, typer.Option("--best/--paper", help="also our best methods, or only the papers' methods")] = True,
    data: Annotated[Path | None, typer.Option(metavar="DIR", help="the real data sets; missing ones are generated")] = None,
    seed: Annotated[int, typer.Option(min=0, max=2**63, help="seed of all randomness")] = 1,
    pictures: Annotated[Path | None, typer.Option(metavar="DIR", help="also draw the figures, as PNG")] = None,
    listed: Annotated[bool, typer.Option("--list", help="only list the names of the tables and figures")] = False,
    json: JsonFile = None,
) -> None:
    """Reproduce the papers' tables and figures, with the published numbers beside ours."""
    known = {target.name: target for target in TARGETS}
    if listed:
        for target in TARGETS:
            console.print(f"{target.name:24} {target.title}", highlight=False, soft_wrap=True)
        return
    for name in names or ():
        if name not in known:
            raise typer.BadParameter(f"must be one of those that --list names, got {name!r}", param_hint="NAME")
    if data is not None and not data.is_dir():
        raise typer.BadParameter(f"must be a folder, got {str(data)!r}", param_hint="--data")
    plan = Plan(quick=quick, best=best, seed=seed, data=data and data.resolve())
    with job_bar() as progress:
        found = reproduce([known[name] for name in names or known], plan, cache_dir() / "reproduced", progress)
    for one in found:
        if one.outcome.rows:
            console.print(table(one))
        for sentence in sentences(one.outcome):
            console.print(sentence, highlight=False, markup=False)
        if pictures is not None and one.outcome.panels:
            pictures.mkdir(parents=True, exist_ok=True)
            draw_panels(one.outcome.panels, one.target.title, pictures / f"{one.target.name}.png")
    write_json(json, [document(one) for one in found])


if __name__ == "__main__":
    run(app)
