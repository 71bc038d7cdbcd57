"""Detection of jumps: the delays of several statistics, and the filter's run lengths (mean steps to a false alarm).

Run: `python -m experiments.bench.changes` (about 2 minutes).

Delays. A filter with the constant gain 0.03 follows k independent values. After 60 steps, some values jump, with alternating
signs. The size of a jump is in standard errors of an observation. The statistics are:

    change   largest change between two successive steps (`estimators.diagnostics.drift`)
    cusum    largest two-sided cumulative sum of the innovations minus 0.5
    glr      largest score of `estimators.changes`
    sum      largest sum of squared scores over all values, over the last 32 possible steps of the jump

All statistics have the same run length: the thresholds are quantiles of simulated streams without a jump. A run without an
alarm within 90 steps after the jump has the delay 90.

Run lengths. `LocalLevel` filters streams without a jump; its stated run length is 500 steps.
"""

import math
from collections.abc import Callable

import numpy as np
from rich.console import Console
from rich.table import Table

from estimators.changes import STARTS
from estimators.local_level import LocalLevel
from mechanisms.arguments import FloatArray

RUN_LENGTH, GAIN, BEFORE, AFTER = 2000, 0.03, 60, 90
STATISTICS = ("change", "cusum", "glr", "sum")
JUMPS = (("1", 1.0), ("1", 2.0), ("1", 3.0), ("1", 5.0), ("2", 2.0), ("2", 3.0), ("k/2", 0.5), ("k/2", 1.0), ("k/2", 2.0))


def innovations(rng: np.random.Generator, steps: int, streams: int, jump: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Returns standardized innovations and one-step changes (in their standard deviations), (steps, streams, k) each.

    `jump` is the (k,) jump at step `BEFORE`, in standard errors of an observation.
    """
    lag = np.where(np.arange(steps) >= BEFORE, (1 - GAIN) ** (np.arange(steps) - BEFORE), 0.0)
    spread = 1 / math.sqrt(1 - GAIN)  # standard deviation of an innovation, if the standard deviation of an observation is 1
    found = rng.normal(size=(steps, streams, jump.size)) + lag[:, None, None] * jump / spread
    level, observed = np.zeros(found.shape[1:]), np.empty_like(found)
    for t in range(steps):
        observed[t] = level + found[t]
        level += GAIN * found[t]
    return found, np.diff(observed, axis=0, prepend=observed[:1]) * spread / math.sqrt(2)


def statistics(found: FloatArray, change: FloatArray) -> dict[str, FloatArray]:
    """Returns each statistic, (steps, streams)."""
    steps, streams, k = found.shape
    result = {name: np.zeros((steps, streams)) for name in STATISTICS}
    result["change"] = np.abs(change).max(axis=2)
    up, down = np.zeros((streams, k)), np.zeros((streams, k))
    sums, squares, lag = np.zeros((STARTS, streams, k)), np.ones((STARTS, 1, 1)), np.zeros((STARTS, 1, 1))
    for t in range(steps):
        up, down = np.maximum(up + found[t] - 0.5, 0), np.maximum(down - found[t] - 0.5, 0)
        result["cusum"][t] = np.maximum(up, down).max(axis=1)
        slot = t % STARTS
        sums[slot], squares[slot], lag[slot] = 0, 0, 1
        sums += lag * found[t]
        squares += lag**2 * (lag > 0)
        lag *= 1 - GAIN
        scores = sums**2 / squares
        result["glr"][t] = scores.max(axis=(0, 2))
        result["sum"][t] = scores.sum(axis=2).max(axis=0)
    return result


def delays(k: int, seed: int = 1) -> list[list[str]]:
    """Returns the rows of the table for k values."""
    rng, length = np.random.default_rng([seed, k]), 300
    quiet = statistics(*innovations(rng, length, 400, np.zeros(k)))
    limits = {name: np.quantile(each.max(axis=0), math.exp(-length / RUN_LENGTH)) for name, each in quiet.items()}
    rows = []
    for values, size in JUMPS:
        changed = k // 2 if values == "k/2" else int(values)
        jump = np.where(np.arange(k) < changed, size * (-1.0) ** np.arange(k), 0.0)
        found = statistics(*innovations(rng, BEFORE + AFTER, 100, jump))
        row = [str(k), values, f"{size:g}"]
        for name in STATISTICS:
            alarm = found[name] > limits[name]
            waited = np.where(alarm[BEFORE:].any(axis=0), alarm[BEFORE:].argmax(axis=0) + 1, AFTER)
            row.append(f"{waited[~alarm[:BEFORE].any(axis=0)].mean():.1f}")
        rows.append(row)
    return rows


def false_alarms(k: int, drifts: Callable[[int], FloatArray], stated: float, steps: int) -> int:
    """Counts the alarms of a filter of k normal values.

    `drifts` are the standard deviations of the levels' changes in a step, divided by the standard deviation of an observation.
    """
    rng, level, truth, found = np.random.default_rng([2, k]), LocalLevel(k, run_length=stated), np.zeros(k), 0
    spread = 0.01  # standard deviation of an observation
    for _ in range(steps):
        truth = truth + spread * drifts(k) * rng.normal(size=k)
        found += level.step(truth + spread * rng.normal(size=k), np.full(k, spread**2)).change is not None
    return found


STREAMS: dict[str, Callable[[int], FloatArray]] = {
    "constant": np.zeros,
    "all drift a little (0.1)": lambda k: np.full(k, 0.1),
    "one in ten drifts strongly (1.0)": lambda k: np.where(np.arange(k) < max(1, k // 10), 1.0, 0.0),
}


def main() -> None:
    """Prints both tables."""
    console = Console(width=120)
    shown = Table("k", "values that jump", "size", *STATISTICS, title=f"Mean steps to an alarm; run length {RUN_LENGTH}")
    for k in (2, 10, 100):
        for row in delays(k):
            shown.add_row(*row)
    console.print(shown)
    stated, steps = 500.0, 20_000
    lengths = Table("k", "stream", "alarms", "run length", title=f"False alarms of the filter; stated {stated:g} steps")
    for k in (2, 10, 100):
        for name, drifts in STREAMS.items():
            alarms = false_alarms(k, drifts, stated, steps)
            lengths.add_row(str(k), name, str(alarms), f"{steps / max(alarms, 1):.0f}")
    console.print(lengths)


if __name__ == "__main__":
    main()
