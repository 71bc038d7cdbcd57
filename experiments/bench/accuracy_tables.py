"""Tables of the accuracies: on the terminal, as Markdown and as CSV. The winner of each row is marked."""

import csv
import io
import math
from collections import Counter
from collections.abc import Iterable

from rich.box import SIMPLE_HEAD
from rich.table import Table

from experiments.bench.accuracy import Result, Row

PEERS = {"multi-freq-ldpy: MI": "MI*", "multi-freq-ldpy: IBU": "IBU*"}
SHOWN = {"mi": "mi", "mi power-ns": "power-ns", "ibu": "ibu", "mle": "mle", **PEERS}  # columns on a terminal


def columns(result: Result) -> list[str]:
    """The estimators, in the order in which they first appear."""
    return list(dict.fromkeys(name for row in result.rows for name in row.mse))


def summary(result: Result) -> list[tuple[str, int, float, dict[str, float]]]:
    """(mechanism, k, ε, {estimator: error}): geometric means of the errors over the shapes and sizes of a mechanism, k and ε.

    The other library ran only some settings. The library's value is the mean of our matrix inversion over all settings, times a
    ratio. For each of the library's settings we divide the library's error by the error of our matrix inversion. The ratio is
    the geometric mean of these quotients.
    """
    groups: dict[tuple[str, int, float], list[Row]] = {}
    for row in result.rows:
        groups.setdefault((row.setting.mechanism, row.setting.k, row.setting.eps), []).append(row)
    found = []
    for key, rows in groups.items():
        means = {name: _mean(row.mse.get(name) for row in rows) for name in columns(result)}
        for name in PEERS:
            if name in means:
                means[name] = means["mi"] * _mean(row.mse[name] / row.mse["mi"] for row in rows if name in row.mse)
        found.append((*key, means))
    return found


def wins(result: Result) -> dict[str, int]:
    """Number of settings in which each of our estimators is the best."""
    return dict(Counter(row.best for row in result.rows).most_common())


def ratios(result: Result) -> dict[str, float]:
    """The other library's error divided by our best estimator's error: the geometric mean over the library's settings."""
    names = [name for name in columns(result) if name in PEERS]
    return {name: _mean(row.mse[name] / row.mse[row.best] for row in result.rows if name in row.mse) for name in names}


def table(result: Result) -> Table:
    """Terminal table, a line for each mechanism, k and ε: errors of the `SHOWN` estimators, divided by our smallest error."""
    names = [name for name in columns(result) if name in SHOWN]
    heads = [SHOWN[name] for name in names]
    shown = Table("mechanism", "k", "ε", "best", *heads, box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    shown.title, shown.caption = "Errors, 1 = the best", "* multi-freq-ldpy"
    for column in shown.columns[4:]:
        column.justify = "right"
    for mechanism, k, eps, means in summary(result):
        best = _best(means)
        cells = [_relative(means[name] / means[best], name == best, "[bold]{}[/bold]") for name in names]
        shown.add_row(mechanism, str(k), f"{eps:g}", best.removeprefix("mi "), *cells)
    return shown


def markdown(result: Result) -> str:
    """Markdown table of the same errors for all estimators."""
    names = columns(result)
    lines = ["| mechanism | k | ε | best MSE | " + " | ".join(PEERS.get(name, name) for name in names) + " |"]
    lines.append("|---" * (4 + len(names)) + "|")
    for mechanism, k, eps, means in summary(result):
        best = _best(means)
        cells = [_relative(means[name] / means[best], name == best, "**{}**") for name in names]
        lines.append(f"| {mechanism} | {k} | {eps:g} | {means[best]:.2e} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def as_csv(result: Result) -> str:
    """Errors as CSV, one line for each setting."""
    text, names = io.StringIO(), columns(result)
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["mechanism", "k", "eps", "shape", "n", "best", *names])
    for row in result.rows:
        s = row.setting
        cells = [f"{row.mse[name]:.4g}" if name in row.mse else "" for name in names]
        writer.writerow([s.mechanism, s.k, f"{s.eps:g}", s.shape, s.n, row.best, *cells])
    return text.getvalue()


def _mean(errors: Iterable[float | None]) -> float:
    found = [math.log(max(x, 1e-300)) for x in errors if x is not None]
    return math.exp(sum(found) / len(found)) if found else math.nan


def _best(means: dict[str, float]) -> str:
    return min((name for name in means if name not in PEERS and not math.isnan(means[name])), key=lambda name: means[name])


def _relative(ratio: float, best: bool, mark: str) -> str:
    text = "–" if math.isnan(ratio) else f"{ratio:.2f}" if ratio < 100 else f"{ratio:.0f}" if ratio < 10_000 else f"{ratio:.0e}"
    return mark.format(text) if best else text
