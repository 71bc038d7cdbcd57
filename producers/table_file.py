"""Reads a table of people's values: a CSV file in UTF-8 with a header. No message shows the contents of a cell.

The header line decides which of comma, semicolon and tab separates the cells. A byte order mark and empty lines are skipped.
"""

import csv
import re
import unicodedata
from collections import Counter
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from decimal import Decimal, InvalidOperation
from itertools import chain
from pathlib import Path
from typing import NoReturn

from ldpstream.mechanisms.wording import plural
from ldpstream.surveys.errors import UserError, did_you_mean

DELIMITERS = ",;\t"
MISSING = {"", "na", "n/a", "nan", "null", "none"}  # cells without a value, in lower case


class DataError(UserError, ValueError):
    """A file of values cannot be used."""


class TableFile:
    """A CSV file of people's values.

    Attributes:
        line: number of the last line that was read; the first line is 1.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.line = path, 0

    def rows(self) -> Generator[list[str]]:
        """Yields the header, then every row as a list of cells. All rows have as many cells as the header.

        Raises:
            DataError: if the file cannot be read, is empty, is not CSV in UTF-8, or has a row of another length.
        """
        try:
            with self.path.open(encoding="utf-8-sig", newline="") as file:
                yield from self._parsed(file)
        except OSError as error:
            raise DataError(f"{self.path}: cannot be read: {error.strerror}") from error
        except UnicodeDecodeError:  # not chained: the exception contains text of the file
            self.line = self._first_line_not_utf8()
            self.refuse("not UTF-8")
        except csv.Error as error:
            self.refuse(f"not CSV: {error}")

    def header(self) -> list[str]:
        """Returns the header."""
        with closing(self.rows()) as rows:
            return next(rows)

    def refuse(self, why: str) -> NoReturn:
        raise self.error(why) from None

    def error(self, why: str) -> DataError:
        return DataError(f"{self.path}, line {self.line}: {why}")

    def _parsed(self, file: Iterator[str]) -> Iterator[list[str]]:
        lines = self._counted(file)
        first = next((line for line in lines if line.strip()), None)
        if first is None:
            raise DataError(f"{self.path}: is empty; the first line must name the columns")
        delimiter = max(DELIMITERS, key=first.count)  # the comma if there is none
        width = 0
        for row in csv.reader(chain([first], lines), delimiter=delimiter, strict=True):
            if not row:
                continue  # an empty line
            width = width or len(row)
            if len(row) != width:
                self.refuse(f"has {plural(len(row), 'column')}, the header {width}")
            yield row

    def _counted(self, lines: Iterator[str]) -> Iterator[str]:
        for self.line, line in enumerate(lines, 1):
            yield line

    def _first_line_not_utf8(self) -> int:
        with self.path.open("rb") as file:
            for number, line in enumerate(file, 1):
                try:
                    line.decode()
                except UnicodeDecodeError:
                    return number
        raise AssertionError("every line is UTF-8, but the file is not")


def has_steps(header: Sequence[str]) -> bool:
    """True if the second column is called ``step``: every row is then a person at a step."""
    return len(header) > 1 and header[1].strip().lower() == "step"


def find_column(table: TableFile, header: Sequence[str], attribute: str, first: int = 0) -> int:
    """Returns the index of the column with an attribute's name, otherwise of the column whose `attribute_name` is this name.

    Raises:
        DataError: if no column or more than one column fits. The message shows no other name of a column: in a file without a
            header, the first line has a person's values.
    """
    names = [name.strip() for name in header]
    for read in (names, [attribute_name(name) for name in names]):
        places = [i for i, name in enumerate(read) if name == attribute and i >= first]
        if len(places) > 1:
            table.refuse(f"columns {_numbers(places)} are named {attribute}; only one may be")
        if places:
            return places[0]
    similar = [i for i, name in enumerate(names) if i >= first and did_you_mean(name, [attribute])]
    raise table.error(f"no column named {attribute}" + (f"; column {_numbers(similar)} has a similar name" if similar else ""))


def require_names(table: TableFile, header: Sequence[str]) -> None:
    """Raises DataError if a name in the first line shows that it is no header, or two columns give one `attribute_name`."""
    for i, name in enumerate(header, 1):
        wrong = "empty" if is_missing(name) else "a number" if number_text(name) else "an address" if "@" in name else None
        if wrong is not None:
            table.refuse(f"not a header, since column {i} is {wrong}; the first line must name the columns")
    names = [attribute_name(name) for name in header]
    for name, n in Counter(names).items():
        if n > 1:
            places = [i for i, other in enumerate(names) if other == name]
            table.refuse(f"columns {_numbers(places)} have the same name; give every column its own name")


def _numbers(places: Sequence[int]) -> str:
    return " and ".join(str(i + 1) for i in places)


def attribute_name(column: str) -> str:
    """Returns a valid name of an attribute for a column.

    >>> attribute_name(" Größe (cm) ")
    'Gro_e_cm'
    """
    plain = "".join(c for c in unicodedata.normalize("NFKD", column) if not unicodedata.combining(c))
    return re.sub(r"[^A-Za-z0-9.-]+", "_", plain).strip("_.-")[:64] or "column"


def is_missing(cell: str) -> bool:
    """True if the cell is empty or has a word for a missing value."""
    return cell.strip().lower() in MISSING


def number_text(cell: str) -> str | None:
    """Returns a number's text without an exponent or needless zeros; None for any other cell.

    A number here has no needless zeros at its beginning, at most 15 digits before the point, and at most 40 after the point.
    Its exponent has at most two digits.

    >>> [number_text(cell) for cell in ("1.0", "+5", "1e3", "-0.50", "007", "0x1", "inf", "1_0")]
    ['1', '5', '1000', '-0.5', None, None, None, None]
    """
    cell = cell.strip()
    if not re.fullmatch(r"[+-]?(?:0|[1-9]\d{0,14})?(?:\.\d{0,40})?(?:[eE][+-]?\d{1,2})?", cell, re.ASCII):
        return None
    try:
        text = f"{Decimal(cell):f}"
    except InvalidOperation:  # no digits at all
        return None
    if "." in text:
        text = text.rstrip("0").rstrip(".")
    return "0" if text == "-0" else text
