"""Jobs of invented targets, in a module that other processes can import."""

from pathlib import Path

import numpy as np


def square(x: int, seed: int, log: str) -> int:
    """Appends x to the log and returns x² + seed."""
    with Path(log).open("a", encoding="utf-8") as file:
        file.write(f"{x}\n")
    return x * x + seed


def fail(x: int) -> None:
    """Always fails."""
    raise ValueError(f"no {x}")


def threads() -> int:
    """Number of threads of this process after a matrix product that is large enough for several threads."""
    square = np.ones((500, 500))
    return int((square @ square)[0, 0] > 0) and len(list(Path("/proc/self/task").iterdir()))
