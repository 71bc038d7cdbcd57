"""Reads a table of people's values: a CSV file in UTF-8 with a header. No message shows a cell's contents.

All cells are texts. A cell is read without blanks at its ends (`surveys.texts.plain`). Rows without any contents are skipped.
The separator is a comma, semicolon, tab or vertical bar: the one that splits the header and the first rows into equally many
cells. A first line such as ``sep=;`` names it. The file is read once, from its beginning to its end, and may be a pipe.
"""

import csv
import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from decimal import Decimal, InvalidOperation
from io import BufferedReader, TextIOWrapper
from itertools import chain, islice
from pathlib import Path
from typing import NoReturn

from ldpstream.mechanisms.wording import plural
from ldpstream.surveys.errors import UserError
from ldpstream.surveys.texts import plain

DELIMITERS = ",;\t|"
SAMPLE = 100  # number of lines that decide the separator
MISSING = ("NA", "N/A", "#N/A", "<NA>", "n.a.", "NaN", "NULL", "None", "-", "–", "—")  # words for no answer, in any case


class DataError(UserError, ValueError):
    """A file of values cannot be used."""


class PeopleTable:
    """A table of people's values.

    Attributes:
        header: the names in the first line; "" for a column without a name.
        names: for every column the name that an attribute may have, all different. A column whose name has no letters or digits
            of ASCII, or the same `attribute_name` as another column, is called ``column_2`` by its place.
        line: line of the file at which the present row begins; the first line is 1.
    """

    def __init__(self, path: Path, file: BufferedReader, missing: Sequence[str]) -> None:
        self.path, self.line = path, 1
        self.missing = {"", *(plain(word).casefold() for word in missing)}
        self._rows = self._csv(file)
        self.header = [plain(name) for name in next(self._rows, [])]
        if not any(self.header):
            raise DataError(f"{path}: is empty; the first line must name the columns")
        self.names = own_names(self.header)

    @property
    def step_place(self) -> int | None:
        """Index of a column ``step``, if every row is a person at a step: the column follows the person's column.

        The person's column is the first one, or the second one after a column without a name (row numbers).
        """
        places = (1,) if self.header[0] else (1, 2)
        return next((i for i in places if [name.casefold() for name in self.header[i : i + 1]] == ["step"]), None)

    def rows(self) -> Iterator[list[str]]:
        """Yields each row as a list of cells, at least as many as there are columns up to the last one with a name.

        Raises:
            DataError: if the file is not CSV in UTF-8, or a row has another number of cells than the header. Cells beyond the
                header may be empty, and cells below columns without a name at the end may lack.
        """
        width = len(self.header)
        least = max(i for i, name in enumerate(self.header, 1) if name)
        for row in self._rows:
            if len(row) != width and (len(row) < least or any(plain(cell) for cell in row[width:])):
                columns = plural(len(row), "column")
                self.refuse(f"has {columns}, the header {width}; remove titles and comments above the names of the columns")
            yield [plain(cell) for cell in row]

    def is_missing(self, cell: str) -> bool:
        """True if a plain cell is empty or has a word for no answer."""
        return cell.casefold() in self.missing

    def find(self, name: str, first: int = 0) -> int:
        """Returns the index of the column whose header is a name, otherwise of the column that `names` calls so.

        Args:
            first: index of the first column to search.

        Raises:
            DataError: if no column fits, or several do. The message shows no other name of a column: in a file without a
                header, the first line has a person's values.
        """
        places = [i for i, header in enumerate(self.header) if header == plain(name) and i >= first]
        places = places or [i for i, own in enumerate(self.names) if own == name and i >= first]
        if not places:
            raise self.error(f"none of its {plural(len(self.header), 'column')} is named {name}; the first line must name them")
        if len(places) > 1:
            self.refuse(f"columns {' and '.join(str(i + 1) for i in places)} are named {name}; only one may be")
        return places[0]

    def require_names(self, places: Sequence[int]) -> None:
        """Raises DataError if the name of one of these columns shows that the first line is no header."""
        for i in places:
            name = self.header[i]
            wrong = "a number" if number_text(name) else "an address" if "@" in name else None
            if wrong is not None:
                self.refuse(f"not a header, since column {i + 1} is {wrong}; the first line must name the columns")

    def refuse(self, why: str) -> NoReturn:
        raise self.error(why) from None

    def error(self, why: str) -> DataError:
        return DataError(f"{self.path}, line {self.line}: {why}")

    def _csv(self, file: BufferedReader) -> Iterator[list[str]]:
        lines = self._lines(file)
        sample = list(islice(lines, SAMPLE))
        skipped = next((i for i, line in enumerate(sample) if plain(line)), len(sample))
        named = re.fullmatch(r'"?sep=([^"\r\n])"?\1*\s*', sample[skipped], re.IGNORECASE) if skipped < len(sample) else None
        skipped += named is not None
        delimiter = _delimiter(sample[skipped:]) if named is None else named[1]
        reader = csv.reader(chain(sample[skipped:], lines), delimiter=delimiter, strict=True)
        while True:
            self.line = skipped + reader.line_num + 1
            try:
                row = next(reader)
            except StopIteration:
                return
            except csv.Error as error:
                self.refuse(f"not CSV: {error}; a quotation mark in a text must be doubled, and the text in quotation marks")
            if row == [""] or plain("".join(row)):  # in a file of one column, "" is a person without an answer
                yield row

    def _lines(self, file: BufferedReader) -> Iterator[str]:
        with TextIOWrapper(file, encoding="utf-8-sig", errors="surrogateescape", newline="") as text:
            for number, line in enumerate(text, 1):
                if "\0" in line or (not line.isascii() and re.search("[\udc80-\udcff]", line)):  # bytes that are not UTF-8
                    raise DataError(f"{self.path}, line {number}: not a text in UTF-8; save the table as CSV in UTF-8")
                yield line


@contextmanager
def open_table(path: Path, missing: Sequence[str] = MISSING) -> Iterator[PeopleTable]:
    """Opens a table and reads its header.

    Args:
        missing: words for no answer, beside empty cells.

    Raises:
        DataError: if the file cannot be read, is empty, or is no table.
    """
    try:
        with path.open("rb") as file:
            yield PeopleTable(path, file, missing)
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from error


def _delimiter(lines: Sequence[str]) -> str:
    best, found = (0, 0), ","
    for delimiter in DELIMITERS:
        widths = list[int]()
        with suppress(csv.Error):  # also if the sample ends within a row
            for row in csv.reader(lines, delimiter=delimiter, strict=True):
                widths.append(len(row))
        if widths and widths[0] > 1:
            best, found = max((best, found), ((widths.count(widths[0]), widths[0]), delimiter), key=lambda one: one[0])
    return found


def own_names(header: Sequence[str]) -> list[str]:
    """Returns a name for every column; see `PeopleTable`.

    >>> own_names(["Größe (cm)", "年齢", "", "a b", "a-b", "a_b"])
    ['Gro_e_cm', 'column_2', 'column_3', 'column_4', 'a-b', 'column_6']
    """
    names = [attribute_name(name) for name in header]
    while True:
        count = Counter(names)
        own = [name if name and count[name] == 1 else f"column_{i}" for i, name in enumerate(names, 1)]
        if own == names:
            return own
        names = own


def attribute_name(column: str) -> str:
    """Returns a valid name of an attribute for a column; "" if the column's name has no letters or digits of ASCII.

    >>> attribute_name(" Größe (cm) ")
    'Gro_e_cm'
    """
    decomposed = "".join(c for c in unicodedata.normalize("NFKD", column) if not unicodedata.combining(c))
    return re.sub(r"[^A-Za-z0-9.-]+", "_", decomposed).strip("_.-")[:64]


def number_text(cell: str) -> str | None:
    """Returns a number's text without an exponent or needless zeros; None for any other cell.

    A number here has no needless zeros at its beginning, at most 15 digits before the point, and at most 40 after the point.
    Its exponent has at most two digits.

    >>> [number_text(cell) for cell in ("1.0", "+5", "1e3", "-0.50", "007", "0x1", "inf", "1_0")]
    ['1', '5', '1000', '-0.5', None, None, None, None]
    """
    if not re.fullmatch(r"[+-]?(?:0|[1-9]\d{0,14})?(?:\.\d{0,40})?(?:[eE][+-]?\d{1,2})?", cell, re.ASCII):
        return None
    try:
        text = f"{Decimal(cell):f}"
    except InvalidOperation:  # no digits at all
        return None
    if "." in text:
        text = text.rstrip("0").rstrip(".")
    return "0" if text == "-0" else text
