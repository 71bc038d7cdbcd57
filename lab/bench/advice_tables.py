from collections.abc import Sequence

from rich.table import Table

from lab.bench.advice import INFORMED, KINDS, Compared, Gain, gains
from ldpstream.terminal import table

KNOWLEDGE = {"sample": "with a sample of 5 %", "shapes": "with no data"}


def gain_tables(rows: Sequence[Compared]) -> list[Table]:
    found = []
    for kind in KINDS:
        n = sum(row.kind == kind for row in rows)
        for by in INFORMED:
            title = f"{kind}, {KNOWLEDGE[by]}: {n} settings"
            shown = table(title, "against", "kept", "near", "gain", "least", "where, ε")
            shown.columns[-1].justify = "left"
            for g in gains(rows, kind, by):
                shown.add_row(*gain_cells(g))
            found.append(shown)
    return found


def gain_cells(g: Gain) -> list[str]:
    return [g.choice, f"{g.kept:.1%}", f"{g.near:.1%}", f"×{g.gain:.3g}", f"×{g.least:.3g}", g.where]


GAIN_NOTE = (
    "The tables compare mean squared errors. Gain is the geometric mean of the choice's error divided by the advice's. Least"
    " is the smallest value of this ratio. A choice wins a setting if the advice's error is more than 1 % above the choice's,"
    " and the paired difference is more than three standard errors. Kept is the share of settings that the choice does not"
    " win. Near is the share of settings in which the advice's error is at most 1 % above the choice's. The mark † means the"
    " best of all fixed choices, in hindsight."
)
