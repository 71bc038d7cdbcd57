"""Small picture files."""

from pathlib import Path

import numpy as np
from PIL import Image

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
