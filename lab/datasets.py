"""The papers' data sets, read from the user's folder, or generated with the same n and k if the files are missing."""

import csv
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ldpstream.mechanisms.arguments import IntArray
from ldpstream.surveys.errors import UserError

ABSENT = -1
ADULT_COLUMNS = (1, 3, 5, 6, 7, 8, 9, 13, 14)  # the categorical columns
ADULT_SIZES = (7, 16, 7, 14, 6, 5, 2, 41, 2)
NURSERY_SIZES = (3, 5, 4, 4, 3, 2, 3, 3, 5)


class DatasetError(UserError, ValueError):
    """A data set exists but cannot be read."""


@dataclass(frozen=True, slots=True)
class Dataset:
    """People's values.

    Attributes:
        values: (n, d) values of n people; columns are attributes, or steps of one attribute.
        sizes: (d,) domain sizes; every value is in [0, size), or `ABSENT`.
    """

    name: str
    values: IntArray
    sizes: tuple[int, ...]
    real: bool

    @property
    def source(self) -> str:
        return "" if self.real else f"{self.name} generated"


def nursery(folder: Path) -> IntArray:
    """UCI Nursery: 12 960 rows, 9 categorical columns."""
    return _codes([row for row in _rows(folder / "nursery.data") if row])


def adult(folder: Path) -> IntArray:
    """UCI Adult, both files: the 45 222 rows without a missing value, 9 categorical columns, income last."""
    rows = [row for part in ("adult.data", "adult.test") for row in _rows(folder / part) if len(row) == 15]
    kept = [[row[i].strip().rstrip(".") for i in ADULT_COLUMNS] for row in rows]
    return _codes([row for row in kept if "?" not in row])


def adult_numbers(folder: Path, column: int) -> IntArray:
    """(k,) UCI Adult, both files: the number of people with each number of a column, from the smallest number to the largest.

    `column` is 0 for the age in years (k = 74), 12 for the hours of work in a week (k = 99).
    """
    rows = [row for part in ("adult.data", "adult.test") for row in _rows(folder / part) if len(row) == 15]
    counts = np.bincount([int(row[column]) for row in rows])
    return counts[np.flatnonzero(counts)[0] :]


def adult_occupations(folder: Path) -> IntArray:
    """(15,) UCI Adult, both files: the number of people with each occupation, a missing one included."""
    rows = [row for part in ("adult.data", "adult.test") for row in _rows(folder / part) if len(row) == 15]
    return np.unique([row[6].strip() for row in rows], return_counts=True)[1]


def kosarak(folder: Path) -> IntArray:
    """Kosarak's clicks as the LDP3 paper prepared them: 929 669 people, 128 values."""
    return np.loadtxt(folder / "kosarak.csv", dtype=np.int64)[:, None]


def bms_pos(folder: Path) -> IntArray:
    """BMS-POS as the LDP3 paper prepared it: 500 000 people, 256 values."""
    return np.loadtxt(folder / "bms_pos.csv", dtype=np.int64)[:, None]


def ms_fimu(folder: Path) -> IntArray:
    """MS-FIMU: the visit's class, one of 10, or `ABSENT`, for each of 88 935 people on each of 7 days."""
    _header, *rows = _rows(folder / "ms_fimu_visits.csv")
    people = {person: i for i, person in enumerate(dict.fromkeys(row[0] for row in rows))}
    visits = {name: i for i, name in enumerate(sorted({row[2] for row in rows}))}
    values = np.full((len(people), 7), ABSENT)
    for person, day, visit in rows:
        values[people[person], int(day) - 1] = visits[visit]
    return values


def pwgtp(folder: Path) -> IntArray:
    """ACS 2018, Delaware: 80 replicate weights of each of 9 123 people, coded by rank among the distinct weights."""
    _header, *rows = _rows(folder / "pwgtp_delaware.csv")
    return np.unique(np.array(rows, np.int64), return_inverse=True)[1].reshape(len(rows), -1)


_KNOWN: dict[str, tuple[Callable[[Path], IntArray], int, tuple[int, ...]]] = {
    "nursery": (nursery, 12_960, NURSERY_SIZES),
    "adult": (adult, 45_222, ADULT_SIZES),
    "kosarak": (kosarak, 929_669, (128,)),
    "bms_pos": (bms_pos, 500_000, (256,)),
    "ms_fimu": (ms_fimu, 88_935, (10,) * 7),
    "pwgtp": (pwgtp, 9_123, (1234,) * 80),
}
NAMES = tuple(_KNOWN)


def load(name: str, folder: Path | None, seed: int = 1) -> Dataset:
    """Loads a data set by its name if the folder holds the files; else generates the data set.

    Raises:
        KeyError: if there is no such data set.
        DatasetError: if the files exist but cannot be read, or have other numbers of rows, columns or values than published.
    """
    read, n, sizes = _KNOWN[name]
    if folder is not None:
        try:
            values = read(folder)
        except FileNotFoundError:
            return generated(name, n, sizes, seed)
        except (ValueError, IndexError, KeyError, UnicodeDecodeError, csv.Error) as error:
            raise DatasetError(f"{name} in {folder} cannot be read: {type(error).__name__}") from None
        if values.shape != (n, len(sizes)) or tuple(_distinct(values, sizes)) != sizes:
            raise DatasetError(
                f"{name} in {folder} must have {n:,} rows and columns of {sizes} values, got {values.shape[0]:,} rows and"
                f" columns of {tuple(_distinct(values, sizes))}"
            )
        return Dataset(name, values, sizes, True)
    return generated(name, n, sizes, seed)


def generated(name: str, n: int, sizes: tuple[int, ...], seed: int) -> Dataset:
    rng = np.random.default_rng(seed)
    columns = [rng.choice(k, n, p=(weights := 1 / np.arange(1, k + 1)) / weights.sum()) for k in sizes]
    return Dataset(name, np.stack(columns, axis=1).astype(np.int64), sizes, False)


def _distinct(values: IntArray, sizes: tuple[int, ...]) -> list[int]:
    if len(set(sizes)) == 1 and len(sizes) > 1:
        return [int(values.max()) + 1] * values.shape[1]
    return [int(column.max()) + 1 for column in values.T]


def _codes(rows: list[list[str]]) -> IntArray:
    columns = zip(*rows, strict=True)
    return np.stack([np.unique(np.array(column), return_inverse=True)[1] for column in columns], axis=1).astype(np.int64)


def _rows(path: Path) -> list[list[str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.reader(file))
