from rich.box import SIMPLE_HEAD
from rich.table import Table

from lab.bench.stream_data import SYNTHETIC
from lab.bench.stream_memos import SPACED_MECHANISMS, Row
from lab.bench.stream_rivals import RIVALS
from lab.bench.streams import FILTERED, RAW, Cell, Result

METHODS = (*RIVALS, RAW, FILTERED)
MEASURES = {"mse": "MSE", "mre": "MRE, 0.1 %", "mre_person": "MRE, 1 person"}


def stream_tables(result: Result) -> list[Table]:
    return [_errors(result), _others(result)]


def stream_notes(result: Result) -> list[str]:
    lines = []
    for kind, real in (("synthetic", False), ("real", True)):
        cells = [cell for cell in result.cells if (cell.stream not in SYNTHETIC) == real]
        for measure, title in MEASURES.items() if cells else ():
            gains = sorted(cell.gain(measure) for cell in cells)
            lines.append(
                f"{title}, {len(cells)} {kind} settings: the best rival's error is {gains[0]:.2f} (smallest),"
                f" {gains[len(gains) // 2]:.2f} (median), {gains[-1]:.2f} (largest) times that of the filtered spaced level."
            )
    return lines


def memo_table(rows: list[Row]) -> Table:
    heads = ("each step", "window", "filtered", "loss, any values", "one report", "unchanged", "any values")
    table = Table("mechanism", "ε∞", "ε₁", *heads, box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    table.title = "Values that change often: MSE_avg in 10⁻⁶, loss in nats, chance of a right guess"
    table.caption = "OUE and OLH are the spaced level; their ε∞ is the loss in any w steps · ≤: upper bound"
    for column in table.columns[1:]:
        column.justify = "right"
    for row in rows:
        errors = [row.mse_step, row.mse_window, row.mse_filtered]
        table.add_row(
            f"[bold]{row.mechanism}[/bold]" if row.mechanism in SPACED_MECHANISMS else row.mechanism,
            f"{row.eps_inf:g}",
            f"{row.eps_1:.3g}",
            *("–" if error is None else millionths(error) for error in errors),
            f"{'' if row.exact else '≤ '}{row.eps_sequence:.5g}",
            *(str(guess).replace("at most", "≤") for guess in row.guesses),
        )
    return table


def millionths(error: float) -> str:
    return f"{1e6 * error:.0f}" if error >= 1e-4 else f"{1e6 * error:.3g}"


def _start(title: str, *heads: str) -> Table:
    table = Table("stream", "k", "w", "ε", *heads, title=title, box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    for column in table.columns[1:]:
        column.justify = "right"
    return table


def _setting(cell: Cell) -> tuple[str, str, str, str]:
    return cell.stream, str(cell.k), str(cell.window), f"{cell.eps:g}"


def _errors(result: Result) -> Table:
    table = _start(f"Mean squared errors in 10⁻⁶; {result.repeats} or more repetitions", *METHODS, "gain")
    table.caption = "raw, filtered: the spaced level · gain: the best rival's error divided by the filtered spaced level's"
    for cell in result.cells:
        best = cell.best("mse")
        marks = {best: "[bold]{}[/bold]"}
        cells = [marks.get(name, "{}").format(millionths(cell.errors[name].mse)) for name in METHODS]
        table.add_row(*_setting(cell), *cells, f"{cell.gain('mse'):.2f}")
    return table


def _others(result: Result) -> Table:
    heads = [head for title in list(MEASURES.values())[1:] for head in (title, "filtered", "gain")]
    table = _start("Mean relative errors and detection: the best rival beside the spaced level", *heads, "AUC", "filtered")
    for cell in result.cells:
        ours, parts = cell.errors[FILTERED], []
        for measure in list(MEASURES)[1:]:
            best = cell.best(measure)
            theirs = getattr(cell.errors[best], measure)
            parts += [f"{theirs:.3g} {best}", f"{getattr(ours, measure):.3g}", f"{cell.gain(measure):.2f}"]
        best = cell.best("auc")
        table.add_row(*_setting(cell), *parts, f"{cell.errors[best].auc:.3f} {best}", f"{ours.auc:.3f}")
    return table
