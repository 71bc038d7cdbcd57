"""Jobs of made-up targets: other processes import them."""

from pathlib import Path


def square(x: int, seed: int, log: str) -> int:
    """x², having written down that it ran."""
    with Path(log).open("a", encoding="utf-8") as file:
        file.write(f"{x}\n")
    return x * x + seed


def fail(x: int) -> None:
    """Always."""
    raise ValueError(f"no {x}")
