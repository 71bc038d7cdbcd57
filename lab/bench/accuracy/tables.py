import csv
import io
from collections.abc import Sequence

from rich.box import SIMPLE_HEAD
from rich.table import Table

from lab.bench.accuracy.cells import Cell
from lab.bench.accuracy.compare import DEFAULTS, VIEWS, WORST, Comparison, Result, Summary, summarise, worst
from lab.bench.accuracy.measure import FAST_PEOPLE, IBU_RUNS, IBU_VALUES, PEER_RUNS, SLOW_RUNS

NOTE = (
    "A ratio is a method's mean error divided by the error of the cell's winner; ± is one standard error, from the same"
    " reports. A method is surely worse if the ratio is above 1.05 by more than three standard errors. Results on held-out"
    f" shapes were not used during development. Power, power-ns, eb ordered and exact likelihoods run on the first {SLOW_RUNS}"
    f" runs of a cell; the other libraries on the first {PEER_RUNS}, and multi-freq-ldpy's IBU on {IBU_RUNS} if there are at"
    f" most {IBU_VALUES} values. The worst cells are measured again with another seed. pure-ldp's fast local"
    " hashing (FLH) has its own reports, in the cells of OLH with a single"
    f" step and at most {FAST_PEOPLE:,} people."
)


def tables(result: Result) -> list[Table]:
    found = []
    for view, cells in result.views.items():
        shown = DEFAULTS[view]
        found += [
            method_table(VIEWS[view], cells),
            shape_table(VIEWS[view], cells, shown),
            worst_table(VIEWS[view], cells, shown),
        ]
    return found


def as_csv(result: Result) -> str:
    text = io.StringIO()
    names = list(dict.fromkeys(name for cells in result.views.values() for one in cells for name in one.ratios))
    fields = Cell.__struct_fields__
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["view", *fields, "winner", "error", *names])
    for view, cells in result.views.items():
        for one in cells:
            ratios = [f"{one.ratios[name].value:.4g}" if name in one.ratios else "" for name in names]
            writer.writerow([view, *(getattr(one.cell, field) for field in fields), one.winner, f"{one.error:.4g}", *ratios])
    return text.getvalue()


def method_table(title: str, cells: Sequence[Comparison]) -> Table:
    shown = _table(title, "method", "used", "± ", "held out", "±", "won", "surely worse", "worst")
    used, held_out = ({one.method: one for one in summarise(part)} for part in _parts(cells))
    for whole in summarise(cells):
        both = used.get(whole.method), held_out.get(whole.method)
        sure = f"{whole.sure}/{whole.cells}"
        shown.add_row(whole.method, *(text for one in both for text in _mean(one)), str(whole.won), sure, _number(whole.worst))
    return shown


def shape_table(title: str, cells: Sequence[Comparison], default: str) -> Table:
    others = [one for one in summarise(cells) if one.method != default and one.cells == len(cells)]
    fixed = others[0].method
    shown = _table(
        f"{title}: {default} by shape", "shape", "cells", default, fixed, "best other there", "ratio", "surely worse"
    )
    for name in dict.fromkeys(cell.cell.shape for cell in cells):
        part = [cell for cell in cells if cell.cell.shape == name]
        found = {one.method: one for one in summarise(part) if one.cells == len(part)}
        best = next(one for one in found.values() if one.method != default)
        label = f"{name} *" if part[0].cell.held_out else name
        ours = found[default]
        shown.add_row(
            label, str(len(part)), _number(ours.mean), _number(found[fixed].mean), best.method, _number(best.mean),
            f"{ours.sure}/{ours.cells}",
        )  # fmt: skip
    shown.caption = "* held out"
    return shown


def worst_table(title: str, cells: Sequence[Comparison], method: str) -> Table:
    shown = _table(f"{title}: worst cells of {method}", "shape", "mechanism", "k", "ε", "n", "steps", "winner", "ratio", "±",
                   "again", "±")  # fmt: skip
    for one in worst(cells, method, WORST):
        c, r, again = one.cell, one.ratios[method], one.again
        second = ("–", "") if again is None else (_number(again.value), _number(again.error))
        shown.add_row(
            c.shape, c.mechanism, str(c.k), f"{c.eps:g}", f"{c.n:.0e}".replace("e+0", "e"), str(c.steps), one.winner,
            _number(r.value), _number(r.error), *second,
        )  # fmt: skip
    return shown


def _parts(cells: Sequence[Comparison]) -> tuple[list[Comparison], list[Comparison]]:
    return [one for one in cells if not one.cell.held_out], [one for one in cells if one.cell.held_out]


def _table(title: str, *heads: str) -> Table:
    shown = Table(*heads, box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, title=title)
    for column in shown.columns[1:]:
        if column.header not in ("mechanism", "winner", "best other there"):
            column.justify = "right"
    return shown


def _mean(one: Summary | None) -> tuple[str, str]:
    return ("–", "") if one is None else (_number(one.mean), _number(one.spread))


def _number(x: float) -> str:
    return f"{x:.3f}" if x < 10 else f"{x:.1f}" if x < 100 else f"{x:.0f}" if x < 10_000 else f"{x:.0e}"
