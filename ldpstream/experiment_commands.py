"""The commands `audit`, `bench`, `reproduce` and `advise`."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from ldpstream.outputs import JsonFile, drawable, writable
from mechanisms import NAMES
from runtime.settings import load_settings


def add_experiments(app: typer.Typer, console: Console, write_json: Callable[[Path | None, Any], None]) -> typer.Typer:
    """Add the commands to the command line.

    Args:
        app: the command line.
        console: shows the tables.
        write_json: writes a document to a file; nothing if the path is None.

    Returns:
        The group `bench`, to which others can add benchmarks.
    """
    benches = typer.Typer(no_args_is_help=True)
    app.add_typer(benches, name="bench")

    @app.command(name="audit")
    def audit_command(
        mechanism: Annotated[list[str] | None, typer.Option(help="mechanism to audit; repeatable", show_default="all")] = None,
        reports: Annotated[int, typer.Option(min=1000, max=10**7, help="number of vectorised reports of each value")] = 500_000,
        seed: Annotated[int, typer.Option(min=0, max=2**63, help="seed of the vectorised reports")] = 1,
        json: JsonFile = None,
    ) -> None:
        """Attack the reports that the code emits: a lower bound of ε beside each claim. Status 1 if one exceeds its claim."""
        from experiments.audit.audit import K, audit
        from experiments.audit.samplers import code_paths
        from experiments.tables import audit_tables, audit_verdict

        names = list(NAMES) if mechanism is None else mechanism
        for name in names:
            if name not in NAMES:
                raise typer.BadParameter(f"must be one of {', '.join(NAMES)}, got {name!r}", param_hint="--mechanism")
        with _status() as progress:
            result = audit(names, code_paths(reports, K), seed, progress)
        for table in audit_tables(result):
            console.print(table)
        console.print(audit_verdict(result), highlight=False)
        write_json(json, {**msgspec.to_builtins(result), "passed": result.passed})
        if not result.passed:
            raise typer.Exit(1)

    @app.command(name="reproduce")
    def reproduce_command(
        names: Annotated[
            list[str] | None, typer.Argument(metavar="[NAME]…", help="names of tables and figures", show_default="all")
        ] = None,
        quick: Annotated[bool, typer.Option("--quick", help="small parts only, in under three minutes")] = False,
        best: Annotated[bool, typer.Option("--best/--paper", help="also our best methods, or only those of the papers")] = True,
        data: Annotated[Path | None, typer.Option(metavar="DIR", help="the real data sets; what it lacks is generated")] = None,
        seed: Annotated[int, typer.Option(min=0, max=2**63, help="of all randomness")] = 1,
        pictures: Annotated[Path | None, typer.Option(metavar="DIR", help="also draw the figures, as PNG")] = None,
        listed: Annotated[bool, typer.Option("--list", help="only list the names of the tables and figures")] = False,
        json: JsonFile = None,
    ) -> None:
        """Reproduce the papers' tables and figures, with the published numbers beside ours."""
        from experiments.papers import TARGETS
        from experiments.papers.reproduction import Plan, reproduce
        from experiments.papers.reproduction_tables import document, draw, sentences, table
        from experiments.peers.environment import cache_dir

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
        with _bar() as progress:
            found = reproduce([known[name] for name in names or known], plan, cache_dir() / "reproduced", progress)
        for one in found:
            if one.outcome.rows:
                console.print(table(one))
            for sentence in sentences(one.outcome):
                console.print(sentence, highlight=False, markup=False)
            if pictures is not None and one.outcome.panels:
                pictures.mkdir(parents=True, exist_ok=True)
                draw(one.outcome, one.target.title, pictures / f"{one.target.name}.png")
        write_json(json, [document(one) for one in found])

    @app.command(name="advise")
    def advise_command(
        n: Annotated[int, typer.Option(help="number of people who report at a step")],
        k: Annotated[int | None, typer.Option(help="domain size", show_default="the sample's")] = None,
        eps: Annotated[float | None, typer.Option(help="loss of each report, in nats (one-time mechanisms)")] = None,
        eps_inf: Annotated[float | None, typer.Option(help="loss for ever, in nats (memoized mechanisms)")] = None,
        eps_1: Annotated[float | None, typer.Option(help="loss of one report, in nats", show_default="half of eps_inf")] = None,
        horizon: Annotated[int, typer.Option(help="number of reports whose loss is shown")] = 365,
        budget: Annotated[
            float | None, typer.Option(help="in place of eps_1: limit for the horizon's reports, in nats")
        ] = None,
        metric: Annotated[str, typer.Option(help="mse, mae, l1, l2, kl or emd (values on a line)")] = "mse",
        max_bytes: Annotated[int | None, typer.Option(help="largest size of a report, without its envelope")] = None,
        sample: Annotated[
            Path | None, typer.Option(metavar="FILE", help="one value per line, or CSV", show_default="five shapes")
        ] = None,
        column: Annotated[str | None, typer.Option(help="column of the values, if the sample is a CSV file")] = None,
        name: Annotated[str, typer.Option(help="name of the attribute in the survey")] = "value",
        repeats: Annotated[int, typer.Option(help="repetitions for each distribution")] = 100,
        seed: Annotated[int, typer.Option(min=0, max=2**63, help="of all randomness")] = 1,
        picture: Annotated[
            Path | None, typer.Option(metavar="FILE", callback=drawable, help="also draw it (PNG, SVG or PDF)")
        ] = None,
        json: JsonFile = None,
    ) -> None:
        """Find the best mechanism, estimator and post-processing: by exact variance, then by simulation."""
        from experiments.advice import tables as advice_tables
        from experiments.advice.advise import advise, check_attribute
        from experiments.advice.question import AdviceError, Question
        from experiments.advice.sample_file import read_sample
        from experiments.papers.reproduction_tables import draw

        counts, labels = (None, None) if sample is None else read_sample(sample, column, k)
        if labels is not None and metric == "emd":
            raise AdviceError("emd needs values on a line: use numbers in the sample, because labels have no order")
        size = k if counts is None else counts.size
        if size is None:
            raise AdviceError("give --k, or a --sample that determines it")
        if column is not None and sample is None:
            raise AdviceError("--column needs --sample")
        question = Question(k=size, n=n, eps=eps, eps_inf=eps_inf, eps_1=eps_1, horizon=horizon, budget=budget, metric=metric,
                            max_bytes=max_bytes)  # fmt: skip
        known = labels if labels is not None and len(labels) == size else None
        check_attribute(size, name, known)
        with _bar() as progress:
            advice = advise(question, counts, repeats=repeats, seed=seed, seen=progress)
        survey, why = advice_tables.stanza(advice, name, known), advice_tables.reasons(advice)
        for table in (advice_tables.candidate_table(advice), advice_tables.ranking_table(advice)):
            console.print(table)
        for line in why:
            console.print(line, markup=False, highlight=False)
        console.print("\n" + survey, markup=False, highlight=False, soft_wrap=True)
        if picture is not None:
            draw(advice_tables.picture(advice), advice_tables.title(advice), picture)
        write_json(json, {**msgspec.to_builtins(advice), "reasons": why, "survey": survey})

    @benches.callback()
    def benchmarks() -> None:
        """Measure speed and accuracy beside other libraries."""

    @benches.command(name="mechanisms")
    def bench_mechanisms(
        n: Annotated[int, typer.Option(min=1000, max=10**7, help="number of reports of each mechanism")] = 1_000_000,
        k: Annotated[int, typer.Option(min=2, max=100_000, help="domain size")] = 1000,
        peers: Annotated[bool, typer.Option(help="also time other libraries, in a separate environment")] = True,
        json: JsonFile = None,
    ) -> None:
        """Measure the reports a second that one core perturbs and counts, beside other libraries."""
        from experiments.bench.mechanisms import bench
        from experiments.tables import bench_notes, bench_tables

        with _status() as progress:
            result = bench(n, k, peers, progress)
        for table in bench_tables(result):
            console.print(table)
        for line in bench_notes(result):
            console.print(line, highlight=False)
        write_json(json, msgspec.to_builtins(result))

    @benches.command(name="accuracy")
    def bench_accuracy(
        quick: Annotated[bool, typer.Option(help="a small part of the grid, within seconds")] = False,
        repeats: Annotated[int, typer.Option(min=1, max=1000, help="repetitions of each setting")] = 3,
        seed: Annotated[int, typer.Option(min=0, max=2**63, help="of all randomness")] = 1,
        peers: Annotated[bool, typer.Option(help="also multi-freq-ldpy, in a separate environment")] = True,
        csv: Annotated[
            Path | None, typer.Option(metavar="FILE", callback=writable, help="also write every setting's errors")
        ] = None,
        json: JsonFile = None,
    ) -> None:
        """Measure every estimator's mean squared error with every mechanism, over domains, ε, distributions and populations."""
        from experiments.bench import accuracy, accuracy_tables

        with _status() as progress:
            result = accuracy.measure(accuracy.settings(quick), repeats, seed, peers, progress)
        console.print(accuracy_tables.table(result))
        won = ", ".join(f"{name} {n}" for name, n in accuracy_tables.wins(result).items())
        console.print(f"Best of {len(result.rows)} settings: {won}.", highlight=False)
        for name, ratio in accuracy_tables.ratios(result).items():
            console.print(f"{name}: {ratio:.3g} times the error of our best estimator in the same setting.", highlight=False)
        if csv is not None:
            csv.write_text(accuracy_tables.as_csv(result))
        write_json(json, msgspec.to_builtins(result))

    @benches.command(name="estimators")
    def bench_estimators(
        quick: Annotated[bool, typer.Option(help="small domains only, within seconds")] = False,
        peers: Annotated[bool, typer.Option(help="also other libraries, in a separate environment")] = True,
        json: JsonFile = None,
    ) -> None:
        """Time the estimators on one core; the number of reports does not matter."""
        from experiments.bench.estimators import measure, timing_table

        with _status() as progress:
            rows = measure(quick, peers, progress)
        console.print(timing_table(rows))
        write_json(json, msgspec.to_builtins(rows))

    @benches.command(name="coverage")
    def bench_coverage(
        runs: Annotated[int, typer.Option(min=2, max=10**6, help="repetitions for each mechanism and span")] = 2000,
        seed: Annotated[int, typer.Option(min=0, max=2**63, help="of all randomness")] = 1,
        json: JsonFile = None,
    ) -> None:
        """Count how often 95 % intervals contain the truth: steps and windows, every mechanism and estimator."""
        from experiments.bench.coverage import coverage_table, measure

        with _status() as progress:
            rows = measure(runs, seed, progress)
        console.print(coverage_table(rows))
        write_json(json, msgspec.to_builtins(rows))

    @benches.command(name="advice")
    def bench_advice(
        data: Annotated[Path | None, typer.Option(metavar="DIR", help="the real data sets; what it lacks is generated")] = None,
        dataset: Annotated[list[str] | None, typer.Option(help="a data set; repeatable", show_default="all")] = None,
        repeats: Annotated[int, typer.Option(min=10, max=10_000, help="repetitions of each setting")] = 50,
        seed: Annotated[int, typer.Option(min=0, max=2**63, help="of all randomness")] = 1,
        json: JsonFile = None,
    ) -> None:
        """Compare `advise` with every fixed choice on the papers' data sets: half an hour on two cores."""
        from experiments import datasets
        from experiments.advice import gain as advice_gain
        from experiments.advice.tables import GAIN_NOTE, gain_tables

        for one in dataset or ():
            if one not in datasets.NAMES:
                raise typer.BadParameter(f"must be one of {', '.join(datasets.NAMES)}, got {one!r}", param_hint="--dataset")
        asked = advice_gain.settings(advice_gain.cases(data, dataset or datasets.NAMES))
        with _bar() as progress:
            rows = advice_gain.compare(asked, repeats, seed, progress)
        for table in gain_tables(rows):
            console.print(table)
        console.print(GAIN_NOTE, highlight=False)
        write_json(json, msgspec.to_builtins(rows))

    @benches.command(name="service")
    def bench_service(
        quick: Annotated[bool, typer.Option("--quick", help="a trial run at small sizes; its figures mean nothing")] = False,
        json: JsonFile = None,
    ) -> None:
        """Measure the service's speed on the configured Kafka and Redis: about seven minutes.

        Compares agents with a bare consumer and with a stock Faust agent. Also measures a time profile, the time for
        histograms, recovery from a kill, and growth. The command makes its own topics and keys and deletes them. It does not
        touch other data, but slows others down. If no Kafka or Redis runs, `python -m tests.services.rig` in the source tree
        starts both and prints the variables to export.
        """
        from experiments.bench.service import FULL, QUICK, bench
        from experiments.bench.service_site import BenchError
        from experiments.bench.service_tables import service_notes, service_tables

        signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that the clean-up runs
        try:
            with _status() as progress:
                result = bench(load_settings(), QUICK if quick else FULL, progress)
        except BenchError as error:
            Console(stderr=True).print(f"ldpstream: {error}", markup=False, highlight=False)
            raise typer.Exit(1) from None
        for table in service_tables(result):
            console.print(table)
        for line in service_notes(result):
            console.print(line, highlight=False)
        write_json(json, msgspec.to_builtins(result))

    return benches


@contextmanager
def _status() -> Iterator[Callable[[str], None]]:
    """Shows one line with the current activity on standard error, if that is a terminal."""
    with Console(stderr=True).status("") as status:
        yield status.update


@contextmanager
def _bar() -> Iterator[Callable[[int, int, str], None]]:
    """Shows a progress bar on standard error; its arguments: jobs done, total jobs, name of the last job."""
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task("", total=None)
        yield lambda done, total, name: progress.update(task, completed=done, total=total, description=name)
