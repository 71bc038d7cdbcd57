"""The picture of `ledger`, drawn with Matplotlib if it is installed."""

from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ldpstream.output.outputs import write_output
from ldpstream.surveys import Survey

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_REPORTS = 1000


def draw_ledger(survey: Survey, path: Path) -> None:
    """Draws eps_t and eps_sequence over t for every attribute and level, both axes logarithmic."""
    from matplotlib.figure import Figure  # only here: Matplotlib is an optional dependency

    reports = np.unique(np.geomspace(1, MOST_REPORTS, 40).astype(int))
    figure = Figure(figsize=(8, 5), layout="constrained")
    axes = figure.add_subplot()
    curves = [
        (f"{attribute.name}, {level.name} ({m.name})", m)
        for attribute, mechanisms in zip(survey.attributes, survey.mechanisms, strict=True)
        for level, m in zip(attribute.levels, mechanisms, strict=True)
    ]
    for i, (name, m) in enumerate(curves):
        possible = reports[reports <= (m.lifetime_reports or MOST_REPORTS)].tolist()
        axes.plot(possible, [m.eps_t(t) for t in possible], color=f"C{i}", label=f"{name}: same value")
        any_values = [m.eps_sequence(t).value for t in possible]
        axes.plot(possible, any_values, color=f"C{i}", linestyle="--", label=f"{name}: any values")
    axes.set(
        xscale="log", yscale="log", xlabel="reports t", ylabel="privacy loss in nats", title=f"Privacy ledger of {survey.name}"
    )
    axes.grid(visible=True, which="both", alpha=0.3)
    axes.legend(fontsize="small")
    save_figure(figure, path, 150)


def save_figure(figure: "Figure", path: Path, dpi: int) -> None:
    picture = BytesIO()
    figure.savefig(picture, dpi=dpi, format=path.suffix.removeprefix("."))
    write_output(path, picture.getvalue())
