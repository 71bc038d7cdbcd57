from collections.abc import Sequence

from rich.table import Table

from lab.bench.advice import KINDS, Compared, gains
from ldpstream.output.terminal import table


def gain_tables(rows: Sequence[Compared]) -> list[Table]:
    found = []
    for kind in KINDS:
        n = sum(row.kind == kind for row in rows)
        shown = table(f"{kind}: {n} settings", "against", "gain", "better", "least", "where, ε")
        shown.columns[-1].justify = "left"
        for g in gains(rows, kind):
            shown.add_row(g.choice, f"×{g.gain:.3g}", f"{g.better:.1%}", f"×{g.least:.3g}", g.where)
        found.append(shown)
    return found


GAIN_NOTE = (
    "The tables compare mean squared errors. Gain is the geometric mean of the choice's error divided by the advice's. Better"
    " is the share of settings in which the choice has the smaller error. Least is the smallest ratio of the choice's error to"
    " the advice's. The mark † means the best of all fixed choices, in hindsight."
)
