"""The one style of the diagrams, and small picture files."""

from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

INK, SOFT, LINE = "#16202c", "#4d5a68", "#d5dce4"  # as on the live page
CURVES = ["#1f5fa8", "#b05f00", "#1b7f4b", "#a02c78", "#5b46b2", "#0b7285", "#8a5a2b", "#b3261e", "#4d6b00", "#566473"]
STYLE: dict[Any, Any] = {
    "axes.prop_cycle": f"cycler('color', {CURVES})", "axes.edgecolor": SOFT, "axes.labelcolor": INK, "text.color": INK,
    "axes.titlesize": 11, "axes.labelsize": 11, "font.size": 11, "legend.fontsize": 10, "legend.framealpha": 1,
    "xtick.color": SOFT, "ytick.color": SOFT, "axes.grid": True, "grid.color": LINE, "axes.axisbelow": True,
    "axes.spines.top": False, "axes.spines.right": False, "svg.hashsalt": "ldpstream", "svg.fonttype": "path",
}  # fmt: skip
COLOURS, FREQUENT = 256, 160


def shrink(path: Path) -> None:
    """Gives a PNG file a palette of 256 of its own colours: the frequent ones, and those that are farthest from them."""
    pixels = np.asarray(Image.open(path).convert("RGB"))
    colours, which, counts = np.unique(pixels.reshape(-1, 3), axis=0, return_inverse=True, return_counts=True)
    chosen = np.argsort(-counts, kind="stable")[:FREQUENT].tolist()
    distances = ((colours[:, np.newaxis].astype(int) - colours[chosen]) ** 2).sum(axis=2)
    while len(chosen) < min(COLOURS, len(colours)):
        chosen.append(int((distances.min(axis=1) * counts).argmax()))
        distances = np.column_stack([distances, ((colours.astype(int) - colours[chosen[-1]]) ** 2).sum(axis=1)])
    small = Image.fromarray(distances.argmin(axis=1).astype(np.uint8)[which].reshape(pixels.shape[:2]), "P")
    small.putpalette(colours[chosen].tobytes())
    small.save(path, optimize=True)
