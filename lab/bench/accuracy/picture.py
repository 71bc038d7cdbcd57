import math
from pathlib import Path

import numpy as np

from lab.bench.accuracy.compare import VIEWS, Result, summarise

SHOWN = 14  # methods in a panel, the best ones
LIMIT = 10.0  # larger ratios are drawn at this ratio
COLUMNS = 2  # more panels side by side would be too small to read in a document
COLOURS = 128  # number of colours in a PNG


def draw(result: Result, path: Path) -> None:
    from matplotlib.figure import Figure  # imported here: Matplotlib is optional
    from PIL import Image  # Matplotlib needs it

    rows = math.ceil(len(result.views) / COLUMNS)
    figure = Figure(figsize=(4.6 * COLUMNS, 4.8 * rows), layout="constrained")
    axes = figure.subplots(rows, COLUMNS).flat
    for spare in axes[len(result.views) :]:
        spare.set_axis_off()
    for axis, (view, cells) in zip(axes, result.views.items(), strict=False):
        methods = [one for one in summarise(cells) if one.cells == len(cells)][:SHOWN]
        for place, one in enumerate(methods):
            noise = np.random.default_rng(place)
            for held_out, colour in ((False, "C0"), (True, "C1")):
                ratios = [cell.ratios[one.method].value for cell in cells if cell.cell.held_out == held_out]
                heights = place + noise.uniform(-0.3, 0.3, len(ratios))
                axis.plot(np.minimum(ratios, LIMIT), heights, ".", ms=3, alpha=0.5, color=colour)
            axis.plot([one.mean] * 2, [place - 0.4, place + 0.4], color="black", lw=2)
        axis.set(xscale="log", xlim=(0.95, LIMIT * 1.05), xlabel="error divided by the winner's error")
        axis.set_title(VIEWS[view].replace(", ", ",\n"), fontsize="medium")
        axis.set_yticks(range(len(methods)), [one.method for one in methods])
        axis.set_xticks([1, 1.5, 2, 3, 5, 10], ["1", "1.5", "2", "3", "5", "≥ 10"])
        axis.minorticks_off()
        axis.invert_yaxis()
        axis.grid(axis="x", alpha=0.3)
    for label, colour in (("shapes used during development", "C0"), ("held-out shapes", "C1")):
        axes[0].plot([], [], ".", color=colour, label=label)
    axes[0].plot([], [], color="black", lw=2, label="geometric mean")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    figure.savefig(path, dpi=110, metadata={"Date": None} if path.suffix == ".svg" else None)
    if path.suffix == ".png":
        Image.open(path).quantize(COLOURS).save(path, optimize=True)  # a palette takes a third of the bytes
