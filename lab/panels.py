"""Figures of several panels, drawn with Matplotlib if it is installed."""

from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

from ldpstream.output.outputs import OutputError, write_output

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


@dataclass(frozen=True, slots=True)
class Curve:
    """A curve of a figure; `spread` is half the length of each error bar."""

    label: str
    x: Sequence[float]
    y: Sequence[float]
    spread: Sequence[float] | None = None


@dataclass(frozen=True, slots=True)
class Panel:
    """One pair of axes of a figure; `names`, if any, replace the numbers at x = 0, 1, …"""

    title: str
    x: str
    y: str
    curves: Sequence[Curve]
    log_x: bool = False
    log_y: bool = False
    names: Sequence[str] = ()


def draw_panels(panels: Sequence[Panel], title: str, path: Path) -> None:
    """Draws the panels into one file.

    Raises:
        OutputError: if Matplotlib is missing.
    """
    try:
        import matplotlib as mpl  # only here: Matplotlib is an optional dependency
    except ImportError:
        raise OutputError("pictures need Matplotlib: pip install matplotlib") from None
    from lab.pictures import STYLE

    with mpl.rc_context(STYLE):
        _draw(panels, title, path)


def _draw(panels: Sequence[Panel], title: str, path: Path) -> None:
    from matplotlib.figure import Figure

    across = min(3, len(panels))
    down = -(-len(panels) // across)
    figure = Figure(figsize=(4.6 * across, 3.6 * down), layout="constrained")
    figure.suptitle(title, fontsize="medium", wrap=True)
    axes = figure.subplots(down, across, squeeze=False).ravel()
    for axis, panel in zip(axes, panels, strict=False):
        _panel(axis, panel)
    for axis in axes[len(panels) :]:
        axis.set_axis_off()
    save_figure(figure, path, 110)


def save_figure(figure: "Figure", path: Path, dpi: int) -> None:
    picture = BytesIO()
    figure.savefig(picture, dpi=dpi, format=path.suffix.removeprefix("."))
    write_output(path, picture.getvalue())


def _panel(axis: "Axes", panel: Panel) -> None:
    for i, curve in enumerate(panel.curves):
        line, mark = ("-", "--", ":")[i // 10 % 3], "os^vD"[i % 5]
        axis.errorbar(
            curve.x, curve.y, yerr=curve.spread, label=curve.label,
            linewidth=1, color=f"C{i % 10}", linestyle=line, marker=mark, markersize=3,
        )  # fmt: skip
    axis.set_title(panel.title, fontsize="small")
    axis.set_xlabel(panel.x, fontsize="small")
    axis.set_ylabel(panel.y, fontsize="small")
    axis.set_xscale("log" if panel.log_x else "linear")
    axis.set_yscale("log" if panel.log_y else "linear")
    axis.tick_params(labelsize="small")
    if panel.names:
        axis.set_xticks(range(len(panel.names)), panel.names, rotation=60, ha="right", rotation_mode="anchor")
    axis.grid(visible=True, alpha=0.3)
    if any(curve.label for curve in panel.curves):
        axis.legend(fontsize="x-small")
