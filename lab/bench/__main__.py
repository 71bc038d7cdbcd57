"""Runs a benchmark: `python -m lab.bench NAME`."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import msgspec
import typer
from rich.console import Console

from lab.terminal import activity, drawable
from ldpstream.commands.cli import run
from ldpstream.output.outputs import JsonFile, writable, write_json
from ldpstream.output.terminal import console
from ldpstream.runtime.logs import start_log
from ldpstream.runtime.settings import load_settings

app = typer.Typer(add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False)


@app.callback()
def benchmarks() -> None:
    """Measure the speed and the accuracy of ldpstream."""


@app.command(name="mechanisms")
def mechanisms_command(
    n: Annotated[int, typer.Option(min=1000, max=10**7, help="number of reports of each mechanism")] = 1_000_000,
    k: Annotated[int, typer.Option(min=2, max=100_000, help="domain size")] = 1000,
    peers: Annotated[bool, typer.Option(help="also time other libraries, in a separate environment")] = True,
    json: JsonFile = None,
) -> None:
    """Measure how many reports per second one core perturbs and counts, beside other libraries."""
    from lab.bench.mechanisms import bench
    from lab.bench.mechanisms_tables import bench_notes, bench_tables

    with activity() as progress:
        result = bench(n, k, peers, progress)
    for table in bench_tables(result):
        console.print(table)
    for line in bench_notes(result):
        console.print(line, highlight=False)
    write_json(json, msgspec.to_builtins(result))


@app.command(name="windows")
def windows_command(
    data: Annotated[Path | None, typer.Option(help="folder with UCI Adult: also measure errors on real data")] = None,
    runs: Annotated[int, typer.Option(min=1, max=10**4, help="repetitions on real data")] = 10,
    seed: Annotated[int, typer.Option(min=0, max=2**63, help="seed of all randomness")] = 1,
    json: JsonFile = None,
) -> None:
    """Compare windows of L-SS with the other memoized mechanisms, and `auto` with what it formerly chose."""
    from lab.bench import windows

    exact, chosen = windows.ratios(), windows.choices()
    console.print(windows.ratio_table(exact))
    console.print(windows.choice_table(chosen))
    measured = [] if data is None else windows.measure(data, runs, seed)
    if measured:
        console.print(windows.measured_table(measured))
    write_json(json, msgspec.to_builtins({"ratios": exact, "choices": chosen, "measured": measured}))


@app.command(name="literature")
def literature_command(json: JsonFile = None) -> None:
    """Compare our memoized mechanisms with those of the literature, by exact formulas."""
    from lab.bench import literature_cells

    with activity() as progress:
        result = literature_cells.compare(progress)
    for table in literature_cells.tables(result):
        console.print(table)
    console.print(literature_cells.NOTE, highlight=False)
    write_json(json, msgspec.to_builtins(result))


@app.command(name="accuracy")
def accuracy_command(
    quick: Annotated[bool, typer.Option("--quick", help="only some small cells")] = False,
    hard: Annotated[bool, typer.Option("--hard", help="only the cells in which estimates were worst")] = False,
    repeats: Annotated[int, typer.Option(min=2, max=10_000, help="runs of each cell")] = 200,
    seed: Annotated[int, typer.Option(min=0, max=2**63, help="seed of all randomness")] = 1,
    data: Annotated[Path | None, typer.Option(metavar="DIR", help="the real data sets; adds their cells")] = None,
    peers: Annotated[bool, typer.Option(help="also other libraries, in a separate environment")] = True,
    lines: Annotated[
        Path | None, typer.Option(metavar="FILE", callback=writable, help="keep finished cells here, and continue from there")
    ] = None,
    picture: Annotated[
        Path | None, typer.Option(metavar="FILE", callback=drawable, help="also draw all ratios (png, svg or pdf)")
    ] = None,
    json: JsonFile = None,
) -> None:
    """Compare the estimators' errors with the winner's, over a grid of cells."""
    from lab.bench.accuracy import cells, compare, measure, shapes, tables
    from lab.bench.accuracy import picture as pictures

    known = shapes.shapes(data)
    every = known | shapes.FEW | shapes.HARD
    asked = cells.quick_grid(known) if quick else [] if hard else cells.grid(known) + cells.few_cells()
    asked += [] if quick else cells.hard_cells(known)
    with activity() as progress:
        result = compare.result(measure.measure(asked, every, repeats, seed, peers, progress, lines), repeats, seed)
        fresh = measure.measure(compare.worst_of_all(result), every, repeats, seed + 1, peers, progress)
    result = compare.with_second_look(result, fresh)
    for table in tables.tables(result):
        console.print(table)
    console.print(tables.NOTE, highlight=False)
    if picture is not None:
        pictures.draw(result, picture)
    write_json(json, msgspec.to_builtins(result))


@app.command(name="estimators")
def estimators_command(
    quick: Annotated[bool, typer.Option(help="small domains only, within seconds")] = False,
    peers: Annotated[bool, typer.Option(help="also other libraries, in a separate environment")] = True,
    json: JsonFile = None,
) -> None:
    """Measure the estimators' run time on one core."""
    from lab.bench.estimators import measure, timing_table

    with activity() as progress:
        rows = measure(quick, peers, progress)
    console.print(timing_table(rows))
    write_json(json, msgspec.to_builtins(rows))


@app.command(name="coverage")
def coverage_command(
    hard: Annotated[bool, typer.Option("--hard", help="only the cells in which coverage was worst")] = False,
    runs: Annotated[int, typer.Option(min=2, max=10**6, help="repetitions; cells with many values have fewer")] = 2000,
    seed: Annotated[int, typer.Option(min=0, max=2**63, help="seed of all randomness")] = 1,
    data: Annotated[Path | None, typer.Option(metavar="DIR", help="the real data sets; adds their cells")] = None,
    json: JsonFile = None,
) -> None:
    """Count how often 95 % intervals contain the truth."""
    from lab.bench import coverage, coverage_cells, coverage_hard
    from lab.bench.accuracy import cells, shapes

    known = shapes.shapes(data)
    every = known | shapes.FEW | shapes.HARD
    with activity() as progress:
        spans = [] if hard else coverage.measure(runs, seed, progress)
        asked = [] if hard else cells.grid(known) + cells.few_cells()
        grid = coverage_cells.measure_cells(asked, every, runs, seed, progress)
        worst = coverage_hard.measure(cells.hard_cells(known), every, runs if hard else min(runs, 200), seed, progress)
    result = coverage.Result(spans, grid, worst)
    for table in coverage.tables(result):
        console.print(table)
    write_json(json, msgspec.to_builtins(result))


@app.command(name="numbers")
def numbers_command(
    quick: Annotated[bool, typer.Option(help="four settings only")] = False,
    runs: Annotated[int, typer.Option(min=2, max=10_000, help="repetitions of each setting")] = 5,
    seed: Annotated[int, typer.Option(min=0, max=2**63, help="seed of all randomness")] = 1,
    json: JsonFile = None,
) -> None:
    """Compare Square Wave with histograms of unordered reports, for distributions, quantiles and means of numbers."""
    from lab.bench.numbers import measure, settings, summary_table

    with activity() as progress:
        rows = measure(settings(quick), runs, seed, progress)
    console.print(summary_table(rows))
    write_json(json, msgspec.to_builtins(rows))


@app.command(name="number-estimates")
def number_estimates_command(
    quick: Annotated[bool, typer.Option(help="two cells only")] = False,
    runs: Annotated[int, typer.Option(min=2, max=10_000, help="repetitions of each cell")] = 40,
    seed: Annotated[int, typer.Option(min=0, max=2**63, help="seed of all randomness")] = 1,
    json: JsonFile = None,
) -> None:
    """Compare the default estimate of numbers with EMS and wavelets, and measure the coverage of its intervals."""
    from lab.bench.means import means_table
    from lab.bench.number_estimates import cells, coverage_table, measure, ratio_table

    with activity() as progress:
        rows = measure(cells(quick), runs, seed, progress)
    console.print(ratio_table(rows))
    console.print(ratio_table(rows, "wavelets"))
    console.print(coverage_table(rows))
    console.print(means_table())
    write_json(json, msgspec.to_builtins(rows))


@app.command(name="pairs")
def pairs_command(
    runs: Annotated[int, typer.Option(min=2, max=10**6, help="repetitions of each setting")] = 400,
    seed: Annotated[int, typer.Option(min=0, max=2**63, help="seed of all randomness")] = 1,
    json: JsonFile = None,
) -> None:
    """Measure pairs of attributes: errors beside the product of two reports, coverage, size and power of the test."""
    from lab.bench.pairs import coverage_table, error_table, measure

    with activity() as progress:
        rows = measure(runs, seed, progress)
    console.print(error_table(rows))
    console.print(coverage_table(rows))
    write_json(json, msgspec.to_builtins(rows))


@app.command(name="other")
def other_command(
    runs: Annotated[int, typer.Option(min=2, max=10**6, help="repetitions of the simulation")] = 1000,
    seed: Annotated[int, typer.Option(min=0, max=2**63, help="seed of all randomness")] = 1,
    json: JsonFile = None,
) -> None:
    """Compare what prefix levels and a list of candidates find among values that nobody listed."""
    from lab.bench.other import results, share_table, simulate, simulated_table

    rows = results()
    console.print(share_table(rows))
    with activity() as progress:
        simulated = simulate(runs, seed, progress)
    console.print(simulated_table(simulated))
    write_json(json, {"shares": msgspec.to_builtins(rows), "simulated": msgspec.to_builtins(simulated)})


@app.command(name="sets")
def sets_command(
    runs: Annotated[int, typer.Option(min=2, max=10**6, help="repetitions of each setting")] = 400,
    seed: Annotated[int, typer.Option(min=0, max=2**63, help="seed of all randomness")] = 1,
    json: JsonFile = None,
) -> None:
    """Measure questions with several answers: exact errors beside other mechanisms, and coverage of the intervals."""
    from lab.bench.sets import coverage, coverage_table, error_table, errors

    with activity() as progress:
        exact, rows = errors(), coverage(runs, seed, progress)
    console.print(error_table(exact))
    console.print(coverage_table(rows))
    write_json(json, msgspec.to_builtins({"errors": exact, "coverage": rows}))


@app.command(name="streams")
def streams_command(
    quick: Annotated[bool, typer.Option(help="short streams of few people, within seconds")] = False,
    data: Annotated[Path | None, typer.Option(metavar="DIR", help="the real data sets; also measures real streams")] = None,
    repeats: Annotated[int, typer.Option(min=1, max=1000, help="repetitions of each setting")] = 10,
    seed: Annotated[int, typer.Option(min=0, max=2**63, help="seed of all randomness")] = 1,
    json: JsonFile = None,
) -> None:
    """Compare a spaced level and its filter with the seven methods of LDP-IDS and with memos, on values that change."""
    from lab.bench import stream_memos, streams
    from lab.bench.stream_tables import memo_table, stream_notes, stream_tables

    with activity() as progress:
        result = streams.measure(streams.QUICK if quick else streams.FULL, data, repeats, seed, progress)
        memos = stream_memos.measure_memos(stream_memos.QUICK if quick else stream_memos.FULL, repeats, seed, progress)
    for table in (*stream_tables(result), memo_table(memos)):
        console.print(table)
    for line in stream_notes(result):
        console.print(line, highlight=False)
    write_json(json, {"streams": msgspec.to_builtins(result), "memos": msgspec.to_builtins(memos)})


@app.command(name="clocks")
def clocks_command(
    reports: Annotated[int, typer.Option(min=100, max=10**6, help="reports of each setting")] = 10_000,
    seed: Annotated[int, typer.Option(min=0, max=2**63, help="seed of all randomness")] = 1,
    json: JsonFile = None,
) -> None:
    """Simulate the share of reports that wrong clocks of devices cost, with hourly and daily steps."""
    from lab.bench.clocks import clock_table, measure

    with activity():
        rows = measure(reports, seed)
    console.print(clock_table(rows))
    write_json(json, msgspec.to_builtins(rows))


@app.command(name="export")
def export_command(
    steps: Annotated[int, typer.Option(min=1, max=100_000, help="number of hourly steps")] = 8760,
    seed: Annotated[int, typer.Option(min=0, max=2**63, help="seed of all randomness")] = 1,
    json: JsonFile = None,
) -> None:
    """Measure the export of a year of estimates from a topic of its own on the configured Kafka."""
    from lab.bench.export import bench, export_table

    with activity() as progress:
        row = bench(load_settings(), steps, seed, progress)
    console.print(export_table(row))
    write_json(json, msgspec.to_builtins([row]))


@app.command(name="device")
def device_command(
    runs: Annotated[int, typer.Option(min=1, max=1000, help="fresh interpreters for each row")] = 9,
    json: JsonFile = None,
) -> None:
    """Measure modules, import time and peak memory of the device that an application embeds (Linux only)."""
    from lab.bench.device_start import measure, start_table

    with activity():
        rows = measure(runs)
    console.print(start_table(rows))
    write_json(json, msgspec.to_builtins(rows))


@app.command(name="devices")
def devices_command(
    runs: Annotated[int, typer.Option(min=1, max=1000, help="processes for each row")] = 9,
    json: JsonFile = None,
) -> None:
    """Measure what a device in each language costs the program that makes one report (Linux only)."""
    from lab.bench.devices import cost_table, measure

    with activity():
        rows = measure(runs)
    console.print(cost_table(rows))
    write_json(json, msgspec.to_builtins(rows))


@contextmanager
def _on_services() -> Iterator[Callable[[str], None]]:
    from lab.bench.service_site import BenchError

    signal.signal(signal.SIGTERM, signal.default_int_handler)  # raises an exception, so that the clean-up runs
    try:
        with activity() as progress:
            yield progress
    except BenchError as error:
        Console(stderr=True).print(f"ldpstream: {error}", markup=False, highlight=False)
        raise typer.Exit(1) from None


@app.command(name="gateway")
def gateway_command(
    quick: Annotated[bool, typer.Option("--quick", help="a trial run at small sizes; do not use its figures")] = False,
    json: JsonFile = None,
) -> None:
    """Measure the gateway's processor time for a request, on the configured Kafka and Redis."""
    from lab.bench.gateway import FULL, QUICK, bench
    from lab.bench.gateway_tables import gateway_notes, requests_table

    with _on_services() as progress:
        result = bench(load_settings(), QUICK if quick else FULL, progress)
    console.print(requests_table("Requests to the gateway, and to servers that do nothing with them", result.served))
    for line in gateway_notes(result):
        console.print(line, highlight=False)
    write_json(json, msgspec.to_builtins(result))


@app.command(name="one-machine")
def one_machine_command(
    quick: Annotated[bool, typer.Option("--quick", help="a trial run at small sizes; do not use its figures")] = False,
    json: JsonFile = None,
) -> None:
    """Measure `ldpstream serve` (Linux only)."""
    from lab.bench import gateway, one_machine
    from lab.bench.gateway_tables import machine_notes, requests_table

    sizes = (gateway.QUICK, one_machine.QUICK) if quick else (gateway.FULL, one_machine.FULL)
    with _on_services() as progress:
        result = one_machine.bench(*sizes, progress)
    console.print(requests_table("Requests to serve", result.served))
    for line in machine_notes(result):
        console.print(line, highlight=False)
    write_json(json, msgspec.to_builtins(result))


@app.command(name="usage")
def usage_command(
    installations: Annotated[int, typer.Option(min=100, help="simulated installations of each year")] = 5000,
    years: Annotated[int, typer.Option(min=1, help="number of simulated years")] = 20,
    processes: Annotated[int | None, typer.Option(min=1, help="number of processes", show_default="one for each core")] = None,
    json: JsonFile = None,
) -> None:
    """Measure how often the intervals of recipes, and of numbers of people, contain the truth of simulated years."""
    from lab.bench.usage import bench, table, totals

    with activity() as progress:
        found = bench(installations, years, processes, progress)
    console.print(table(found), totals(found))
    write_json(json, found)


@app.command(name="week")
def week_command(
    devices: Annotated[int, typer.Option(min=24, help="number of devices; each reports three attributes once a day")] = 50_000,
    days: Annotated[int, typer.Option(min=1, help="simulated days")] = 10,
    picture: Annotated[
        Path | None, typer.Option(metavar="FILE", callback=drawable, help="also draw memory and disk (png, svg or pdf)")
    ] = None,
    json: JsonFile = None,
) -> None:
    """Measure memory and disk of a small server over days, on a clock that runs faster (Linux only)."""
    from lab.bench.week import bench, draw

    start_log("warning")

    with TemporaryDirectory(prefix="ldpstream-bench-") as place, activity() as progress:
        result = bench(Path(place), devices, days, progress)
    console.print(
        f"{result.reports:,} reports, {result.published} published steps. Memory: first hour {result.memory_mib[0]:.0f} MiB, "
        f"at most {max(result.memory_mib):.0f} MiB. Disk: after a day {result.disk_mib[23]:.0f} MiB, "
        f"at most {max(result.disk_mib):.0f} MiB, at the end {result.disk_mib[-1]:.0f} MiB."
    )
    if picture is not None:
        draw(result, picture)
    write_json(json, msgspec.to_builtins(result))


@app.command(name="service")
def service_command(
    quick: Annotated[bool, typer.Option("--quick", help="a trial run at small sizes; do not use its figures")] = False,
    json: JsonFile = None,
) -> None:
    """Measure the service's speed on the configured Kafka and Redis, in topics and keys of its own."""
    from lab.bench.service import FULL, QUICK, bench
    from lab.bench.service_tables import service_notes, service_tables

    with _on_services() as progress:
        result = bench(load_settings(), QUICK if quick else FULL, progress)
    for table in service_tables(result):
        console.print(table)
    for line in service_notes(result):
        console.print(line, highlight=False)
    write_json(json, msgspec.to_builtins(result))


@app.command(name="surveys")
def surveys_command(
    quick: Annotated[bool, typer.Option("--quick", help="a trial run at small sizes; do not use its figures")] = False,
    json: JsonFile = None,
) -> None:
    """Measure the cost of many surveys on the configured Kafka and Redis (Linux only)."""
    from lab.bench.surveys import FULL, QUICK, bench
    from lab.bench.surveys_tables import surveys_notes, surveys_tables

    with _on_services() as progress:
        result = bench(load_settings(), QUICK if quick else FULL, progress)
    for table in surveys_tables(result):
        console.print(table)
    for line in surveys_notes(result):
        console.print(line, highlight=False)
    write_json(json, msgspec.to_builtins(result))


if __name__ == "__main__":
    run(app)
