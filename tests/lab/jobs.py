"""Jobs of invented targets, in a module that other processes can import."""

from pathlib import Path


def square(x: int, seed: int, log: str) -> int:
    """Appends x to the log and returns x² + seed."""
    with Path(log).open("a", encoding="utf-8") as file:
        file.write(f"{x}\n")
    return x * x + seed


def fail(x: int) -> None:
    """Always fails."""
    raise ValueError(f"no {x}")
