"""Sources of people's true values: a simulation, or a file of values with steps.

A file of values with steps is CSV in UTF-8 with a header. The columns are the person (any text but the empty one), the step (an
integer), and the attributes of the survey, except pairs:

    person,step,mode,zone
    8f3a,0,bus,17
    8f3a,1,car,
    c071,1,bus,4

A cell of an attribute with `choices` has the person's values, separated by semicolons: chat;maps. A lone semicolon is a person
with none of the values.

For a survey with a single attribute, a file of exactly three columns may use any names. A value is written as in the survey:
one of the attribute's texts, an integer below its size, or a number within its bins. Any other value becomes the value that a
device reports for it (`Attribute.find`). A value that a device refuses is an error. An empty cell means that the person has no
value of that attribute at that step. A column may give the cohort (`producers.cohort_column`); others are ignored. A person has
at most one row for a step.
"""

import re
from array import array
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt

from ldpstream.mechanisms.arguments import FloatArray, IntArray, integer
from ldpstream.mechanisms.wording import plural
from ldpstream.producers.randomness import Purpose, stream
from ldpstream.producers.table_file import DataError, TableFile, find_column
from ldpstream.surveys import Attribute, Survey
from ldpstream.surveys.questions import SEPARATOR

MAX_STEPS = 1_000_000
STAY = 0.9  # probability that a simulated value is not drawn anew at a step
DAY_STEPS = 24  # period of the drift in popularity, in steps
DRIFT = 0.5  # amplitude of the drift, in logarithms of popularity


class ValueSource(Protocol):
    """People's true values, step by step.

    Attributes:
        n_people: people are numbered 0 … n_people-1.
        n_steps: steps are numbered 0 … n_steps-1.
    """

    @property
    def n_people(self) -> int: ...

    @property
    def n_steps(self) -> int: ...

    def at(self, step: int, attribute: int) -> tuple[IntArray, IntArray]:
        """Returns the people with a value at a step, and their values. The order of calls does not matter.

        Returns:
            people: (n,) int64, each person at most once. Do not modify this array.
            values: (n,) int64, these people's values, in [0, k); for an attribute with `choices`, the codes of their sets. Do
                not modify this array.
        """


class WithPairs:
    """The values of a source, and the values of pairs, which follow from the values of their two attributes.

    A person has a value of a pair at a step if the person has values of both attributes.
    """

    def __init__(self, survey: Survey, source: ValueSource) -> None:
        self.n_people, self.n_steps = source.n_people, source.n_steps
        self._survey, self._source = survey, source

    def at(self, step: int, attribute: int) -> tuple[IntArray, IntArray]:
        """See `ValueSource.at`."""
        members = self._survey.members(attribute)
        if members is None:
            return self._source.at(step, attribute)
        (people, first), (others, second) = (self._source.at(step, member) for member in members)
        k = self._survey.attributes[members[1]].k
        if people is others:
            return people, first * k + second
        both, i, j = np.intersect1d(people, others, assume_unique=True, return_indices=True)
        return both, first[i] * k + second[j]


class MarkovValues:
    """Simulated values: a Markov chain for every person and attribute. If the survey has pairs, some attributes are dependent.

    At each step after the first, a value is kept with probability 0.9; otherwise it is drawn anew, and may be the same again.
    The popularity of value i falls like 1/(i+1) and drifts with a period of 24 steps. Everybody has a value of every attribute
    at every step.
    """

    def __init__(self, survey: Survey, n_people: int, n_steps: int, seed: int) -> None:
        self.n_people = integer("n_people", n_people, 1, 10**8)
        self.n_steps = integer("n_steps", n_steps, 1, MAX_STEPS)
        self._seed = integer("seed", seed, 0, 2**63)
        self._sizes = [attribute.k for attribute in survey.attributes]
        self._most = [attribute.most for attribute in survey.attributes]
        pairs = [pair for a in range(len(survey.attributes)) if (pair := survey.members(a)) is not None]
        self._followed = {second: first for first, second in reversed(pairs)}  # only the first pair of each second attribute
        self._people = np.arange(self.n_people)
        self._reached: dict[int, tuple[int, IntArray]] = {}

    def at(self, step: int, attribute: int) -> tuple[IntArray, IntArray]:
        """See `ValueSource.at`. Going back to an earlier step recomputes all steps up to that step."""
        integer("step", step, 0, self.n_steps - 1)
        reached, values = self._reached.get(attribute, (-1, self._people))
        if reached > step:
            reached = -1
        for later in range(reached + 1, step + 1):
            values = self._next(attribute, later, values)
        self._reached[attribute] = (step, values)
        return self._people, values

    def _next(self, attribute: int, step: int, values: IntArray) -> IntArray:
        if (most := self._most[attribute]) is not None:
            return self._next_sets(attribute, step, values, most)
        redrawn, ranks = self._draws(attribute, step)
        if attribute in self._followed:
            theirs, their_ranks = self._draws(self._followed[attribute], step)
            follows = self._people % 2 == 0
            redrawn, ranks = np.where(follows, theirs, redrawn), np.where(follows, their_ranks, ranks)
        cumulated = np.cumsum(popularity(self._sizes[attribute], step))
        drawn = np.searchsorted(cumulated, ranks[redrawn] * cumulated[-1], side="right")
        values = values.copy()
        values[redrawn] = drawn
        return values

    def _next_sets(self, attribute: int, step: int, codes: IntArray, most: int) -> IntArray:
        rng, n = stream(self._seed, Purpose.VALUES, attribute, step), self._sizes[attribute] - most
        redrawn = rng.random(self.n_people) >= (STAY if step else 0.0)
        drawn = int(np.count_nonzero(redrawn))
        order = np.argsort(-(np.log(popularity(n, step)) + rng.gumbel(size=(drawn, n))), axis=1)
        chosen = np.arange(n) < rng.integers(0, most + 1, drawn)[:, None]
        codes = codes.copy()
        codes[redrawn] = (chosen << order).sum(axis=1)
        return codes

    def _draws(self, attribute: int, step: int) -> tuple[npt.NDArray[np.bool_], FloatArray]:
        rng = stream(self._seed, Purpose.VALUES, attribute, step)
        redrawn = rng.random(self.n_people) >= (STAY if step else 0.0)
        ranks = np.zeros(self.n_people)
        ranks[redrawn] = rng.random(np.count_nonzero(redrawn))
        return redrawn, ranks


def popularity(k: int, step: int) -> FloatArray:
    i = np.arange(k)
    weights = np.exp(DRIFT * np.sin(2 * np.pi * (step / DAY_STEPS + i / k))) / (i + 1)
    return np.asarray(weights / weights.sum())


class _RecordedValues:
    """Values read from a file, in memory.

    Args:
        columns: for every attribute the arrays (person, step, value) of its entries, each (n,) int64.
    """

    def __init__(self, n_people: int, n_steps: int, columns: list[tuple[IntArray, IntArray, IntArray]]) -> None:
        self.n_people, self.n_steps = n_people, n_steps
        self._columns = []
        for people, steps, values in columns:
            order = np.argsort(steps, kind="stable")
            self._columns.append((steps[order], people[order], values[order]))

    def at(self, step: int, attribute: int) -> tuple[IntArray, IntArray]:
        """See `ValueSource.at`."""
        integer("step", step, 0, self.n_steps - 1)
        steps, people, values = self._columns[attribute]
        first, end = np.searchsorted(steps, [step, step + 1])
        return people[first:end], values[first:end]


def load_values(
    path: str | Path, survey: Survey, first_step: int = 0, tell: Callable[[str], None] = lambda _: None
) -> ValueSource:
    """Reads and checks a whole file of values; the module's docstring gives the format.

    Args:
        first_step: the file's number for the survey's step 0. The last step is the latest step in the file.
        tell: receives a line for each attribute with values outside its domain.

    Raises:
        DataError: if the file cannot be read, breaks the format or has no values, a step is out of range, or a device refuses a
            value.
    """
    reader = _Reader(Path(path), survey, first_step)
    source = reader.read()
    for attribute, n in zip(survey.attributes, reader.outside, strict=True):
        if n:
            outside = plural(n, "value is", "different values are")
            tell(f"{attribute.name}: {outside} not in the domain ({attribute.domain}). {attribute.rest}")
    return source


class _Reader:
    def __init__(self, path: Path, survey: Survey, first_step: int) -> None:
        self._table, self._attributes, self._first_step = TableFile(path), survey.attributes, first_step
        self._person_ids: dict[str, int] = {}
        self._step_of: dict[str, int] = {}  # cache: each different text is parsed once
        self._value_of: list[dict[str, int]] = [{} for _ in self._attributes]
        self.outside = [0] * len(self._attributes)  # number of different texts outside each attribute's domain
        # one entry per row: line, person, step, and for every attribute its value, or -1 for an empty cell
        self._lines, self._people, self._steps = array("q"), array("q"), array("q")
        self._values = [array("q") for _ in self._attributes]

    def read(self) -> ValueSource:
        self._read_rows(self._table.rows())
        people, steps = int64(self._people), int64(self._steps)
        self._require_one_row_a_step(people, steps)
        columns, nothing = [], np.zeros(0, np.int64)
        for attribute, values in zip(self._attributes, self._values, strict=True):
            if attribute.pair is not None:  # `WithPairs` derives its values
                columns.append((nothing, nothing, nothing))
                continue
            numbers = int64(values)
            given = numbers >= 0
            columns.append((people[given], steps[given], numbers[given]))
        if not any(len(values) for _, _, values in columns):
            raise DataError(f"{self._table.path}: holds no values")
        return _RecordedValues(len(self._person_ids), int(steps.max()) + 1, columns)

    def _read_rows(self, rows: Iterator[list[str]]) -> None:
        header = next(rows)
        one = len(self._attributes) == 1 and len(header) == 3
        asked = [a for a, attribute in enumerate(self._attributes) if attribute.pair is None]
        where = [2] if one else [find_column(self._table, header, self._attributes[a].name, first=2) for a in asked]
        cells = [(column, a, self._value_of[a], self._values[a]) for column, a in zip(where, asked, strict=True)]
        for row in rows:
            person, step = row[0], self._step_of.get(row[1])
            if not person:
                self._table.refuse("the person is empty")
            self._lines.append(self._table.line)
            self._people.append(self._person_ids.setdefault(person, len(self._person_ids)))
            self._steps.append(self._step(row[1]) if step is None else step)
            for column, a, known, values in cells:
                value = known.get(row[column])
                values.append(self._value(row[column], a, known) if value is None else value)

    def _step(self, text: str) -> int:
        if not re.fullmatch(r"[+-]?[0-9]{1,18}", text):
            self._table.refuse("the step (second column) must be an integer")
        step = int(text) - self._first_step
        if not 0 <= step < MAX_STEPS:
            last = self._first_step + MAX_STEPS - 1
            self._table.refuse(f"the step (second column) must be from {self._first_step}, the first step, to {last}")
        self._step_of[text] = step
        return step

    def _value(self, text: str, a: int, known: dict[str, int]) -> int:
        if not text:
            return -1
        try:
            known[text], inside = find_cell(self._attributes[a], text)
        except ValueError as error:  # the error's text names the attribute and the domain, not the value
            self._table.refuse(str(error))
        self.outside[a] += not inside
        return known[text]

    def _require_one_row_a_step(self, people: IntArray, steps: IntArray) -> None:
        order = np.lexsort((steps, people))  # a stable sort keeps a person's rows for a step in the file's order
        again = (np.diff(people[order]) == 0) & (np.diff(steps[order]) == 0)
        if again.any():
            self._table.line = int(int64(self._lines)[order[1:][again]].min())
            self._table.refuse("a second row of the same person for the same step")


def find_cell(attribute: Attribute, cell: str) -> tuple[int, bool]:
    """Returns the value of a cell (with `choices`, the code of a set), and true if all of the cell is in the domain.

    Raises:
        ValueError: if a device refuses the value. The message does not show it.
    """
    if attribute.most is None:
        return attribute.find(cell)
    if not cell.strip():
        raise ValueError(f"not a value of the attribute {attribute.name} ({attribute.domain})")
    found = [attribute.find(part) for part in split_cell(cell)]
    return attribute.set_code(found), all(inside for _, inside in found)


def split_cell(cell: str) -> list[str]:
    """Returns the texts of the values of a set in a file's cell; a lone separator is the empty set.

    >>> split_cell("chat; maps"), split_cell(";")
    (['chat', 'maps'], [])
    """
    return [part for part in (text.strip() for text in cell.split(SEPARATOR)) if part]


def int64(numbers: "array[int]") -> IntArray:
    entries: npt.NDArray[np.int64] = np.frombuffer(numbers, np.int64)
    return entries
