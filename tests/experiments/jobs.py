"""Jobs of made-up targets: other processes import them."""

from pathlib import Path

import numpy as np


def square(x: int, seed: int, log: str) -> int:
    """x², having written down that it ran."""
    with Path(log).open("a", encoding="utf-8") as file:
        file.write(f"{x}\n")
    return x * x + seed


def fail(x: int) -> None:
    """Always."""
    raise ValueError(f"no {x}")


def threads() -> int:
    """How many threads this process has after a product of matrices that is large enough for several."""
    square = np.ones((500, 500))
    return int((square @ square)[0, 0] > 0) and len(list(Path("/proc/self/task").iterdir()))
