"""Measures the estimators' errors in each cell: mean squared error, and Wasserstein distance of ordered values.

The truth of a run is the histogram of the people drawn. A missing estimate counts as the uniform distribution.
"""

import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from lab.bench.accuracy.cells import Cell, draw
from lab.bench.accuracy.shapes import Shape
from lab.bench.accuracy.slow_estimates import exact_estimates, ordered_estimates
from lab.bench.methods import estimates, powered_estimates
from lab.error_measures import emd_line, mse
from lab.peers.environment import accuracy_of_peers
from lab.processes import worker_pool
from ldpstream.mechanisms.arguments import FloatArray
from ldpstream.surveys.errors import UserError

FAST, SLOW = (estimates,), (powered_estimates, ordered_estimates, exact_estimates)
SLOW_RUNS = 50  # the slow estimators run on the first runs of a cell only
PEER_RUNS = 20  # the same for other libraries
IBU_RUNS, IBU_VALUES = 10, 20  # multi-freq-ldpy's IBU is slower still: at most this many runs and values
FAST_PEOPLE, FAST_FUNCTIONS = 10_000, 1000  # pure-ldp's fast local hashing: most people, and number of hash functions
PEER_CELLS = 40  # cells in one run of the other libraries' process, which takes long to start
DIGITS = 5  # significant digits of a stored error


class CellErrors(msgspec.Struct, frozen=True, kw_only=True):
    """The errors in one cell, by method, one for each run.

    Attributes:
        mse: mean squared errors over the values.
        wasserstein: Wasserstein distances of the values 0, 1/k, 2/k …; empty if the values are not ordered.
    """

    cell: Cell
    seed: int
    runs: int
    mse: dict[str, list[float]]
    wasserstein: dict[str, list[float]]


class LinesError(UserError):
    """The file of `--lines` is not a file of this command, or is from a run with other settings."""


def random_of(cell: Cell, seed: int, run: int) -> np.random.Generator:
    digest = hashlib.sha256(msgspec.json.encode(cell)).digest()
    return np.random.default_rng([seed, run, *digest[:8]])


def errors(cell: Cell, truth: FloatArray, runs: int, seed: int) -> CellErrors:
    m = cell.build()
    squared: dict[str, list[float]] = {}
    moved: dict[str, list[float]] = {}
    for run in range(runs):
        people, table = draw(cell, truth, random_of(cell, seed, run))
        shares = people / cell.n
        methods = FAST + SLOW if run < SLOW_RUNS else FAST
        for name, frequencies in (found for method in methods for found in method(m, table, cell.steps)):
            estimate = np.nan_to_num(frequencies, nan=1 / cell.k)
            squared.setdefault(name, []).append(_stored(mse(shares, estimate)))
            if cell.ordered:
                moved.setdefault(name, []).append(_stored(emd_line(shares, estimate) / cell.k))
    return CellErrors(cell=cell, seed=seed, runs=runs, mse=squared, wasserstein=moved)


def measure(
    cells: list[Cell],
    shapes: dict[str, Shape],
    runs: int,
    seed: int,
    peers: bool,
    seen: Callable[[str], None],
    lines: Path | None = None,
    processes: int | None = None,
) -> list[CellErrors]:
    kept = read_lines(lines, runs, seed)  # the file may hold cells of another grid
    found = {cell: kept[cell] for cell in cells if cell in kept}
    missing = [cell for cell in cells if cell not in found]
    with worker_pool(processes, 0) as spread:
        for row in spread(_job, [(cell, shapes[cell.shape].make(cell.k), runs, seed) for cell in missing]):
            found[row.cell] = row
            _append(lines, row)
            seen(f"{len(found)} of {len(cells)} cells")
    lonely = [row for row in map(found.__getitem__, cells) if not any(":" in name for name in row.mse)]
    for start in range(0, len(lonely) if peers else 0, PEER_CELLS):
        for row in _with_peers(lonely[start : start + PEER_CELLS], shapes, seen):
            found[row.cell] = row
            _append(lines, row)
    return [found[cell] for cell in cells]


def _job(task: tuple[Cell, FloatArray, int, int]) -> CellErrors:
    return errors(*task)


def _stored(error: float) -> float:
    return float(f"{error:.{DIGITS}g}")


def _with_peers(rows: list[CellErrors], shapes: dict[str, Shape], seen: Callable[[str], None]) -> Iterator[CellErrors]:
    tasks = [peer_task(row, shapes[row.cell.shape].make(row.cell.k)) for row in rows]
    for line in accuracy_of_peers(tasks, seen):
        if "error" not in line:
            row = rows[line["task"]]
            squared, moved = (
                {name: [_stored(error) for error in runs] for name, runs in line[metric].items()}
                for metric in ("mse", "wasserstein")
            )
            yield msgspec.structs.replace(row, mse=row.mse | squared, wasserstein=row.wasserstein | moved)


def peer_task(row: CellErrors, truth: FloatArray) -> dict[str, Any]:
    cell, m = row.cell, row.cell.build()
    drawn = [draw(cell, truth, random_of(cell, row.seed, run)) for run in range(min(row.runs, PEER_RUNS))]
    fast = cell.mechanism == "OLH" and cell.steps == 1 and cell.n <= FAST_PEOPLE
    return {
        "k": cell.k, "p": m.p, "q": m.q, "n": cell.n * cell.steps, "ordered": cell.ordered,
        "people": [people.tolist() for people, _ in drawn],
        "counts": [m.support(table).tolist() for _, table in drawn],
        "ibu": IBU_RUNS if cell.k <= IBU_VALUES else 0,
        "fast": {"eps": cell.eps, "functions": FAST_FUNCTIONS, "seed": row.seed} if fast else None,
    }  # fmt: skip


def read_lines(lines: Path | None, runs: int, seed: int) -> dict[Cell, CellErrors]:
    if lines is None or not lines.exists():
        return {}
    whole = lines.read_bytes()
    ended = whole[: whole.rfind(b"\n") + 1]
    begun, start = whole[len(ended) :], b'{"cell":'
    try:
        if begun[: len(start)] != start[: len(begun)]:
            raise msgspec.DecodeError("the last line does not begin with a cell")
        rows = msgspec.json.Decoder(CellErrors).decode_lines(ended)
    except msgspec.DecodeError as error:
        raise LinesError(f"--lines {lines}: is not a file of this command: {error}") from None
    if ended != whole:
        lines.write_bytes(ended)
    for row in rows:
        if (row.runs, row.seed) != (runs, seed):
            raise LinesError(f"--lines {lines}: holds {row.runs} runs with seed {row.seed}, asked for {runs} with seed {seed}")
    return {row.cell: row for row in rows}


def _append(lines: Path | None, row: CellErrors) -> None:
    if lines is not None:
        with lines.open("ab") as file:
            file.write(msgspec.json.encode(row) + b"\n")
