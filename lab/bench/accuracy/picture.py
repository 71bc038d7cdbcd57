"""The picture of the accuracy benchmark: one bar for each method, from the ratios of its errors to the winners' errors."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from lab.bench.accuracy.compare import VIEWS, Result
from lab.pictures import STYLE

SHOWN = 7  # methods in a panel, the best ones
PANELS = ("all", "few", "ordered", "wasserstein")


def draw(result: Result, path: Path) -> None:
    views = {
        view: {name: [cell.ratios[name].value for cell in cells if name in cell.ratios] for name in cells[0].ratios}
        for view, cells in result.views.items()
        if cells
    }
    draw_ratios(views, path)


def draw_ratios(views: Mapping[str, Mapping[str, Sequence[float]]], path: Path) -> None:
    """Draws the geometric mean of each method's ratios, for the methods that ran in all cells of a view."""
    import matplotlib as mpl  # imported here: Matplotlib is optional
    from matplotlib.figure import Figure

    with mpl.rc_context(STYLE):
        shown = [view for view in PANELS if view in views]
        figure = Figure(figsize=(9, 2.9 * -(-len(shown) // 2)), layout="constrained")
        for i, view in enumerate(shown):
            most = max(map(len, views[view].values()))
            means = {name: float(np.exp(np.log(found).mean())) for name, found in views[view].items() if len(found) == most}
            best = sorted(means, key=lambda name: means[name])[:SHOWN]
            axis = figure.add_subplot(-(-len(shown) // 2), 2, i + 1)
            axis.barh(best, [means[name] for name in best], color=["C0" if name.startswith("eb") else "C9" for name in best])
            for place, name in enumerate(best):
                axis.annotate(f"{means[name]:.2f}", (means[name], place), (3, 0), textcoords="offset points", va="center")
            axis.set(xlim=(0, 1.2 * means[best[-1]]), title=VIEWS[view].replace(", ", ",\n"))
            axis.invert_yaxis()
            axis.grid(visible=False, axis="y")
        figure.supxlabel("error divided by the error of the best method of each case: shorter is better")
        figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)
