"""Tests of tables of people: which cells become which values, what is said about the other cells, and how files are read."""

import os
import threading
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

from ldpstream.device.values import value_index
from ldpstream.producers.people_file import CellReader, read_people
from ldpstream.producers.table_file import MISSING, number_text, open_table
from ldpstream.surveys import Attribute, Survey
from tests.small_survey import small_survey

CITY = {"values": ["Berlin", "Köln", "1", "New York", "other"]}
SIZE, BINS = {"size": 4}, {"bins": [0.0, 10.0, 20.5]}


def survey(**domains: Mapping[str, object]) -> Survey:
    level = {"name": "all", "mechanism": "GRR", "eps": 1.0}
    return small_survey(*({"name": name, **domain, "level": [level]} for name, domain in domains.items()), collection="spl")


def attribute(domain: Mapping[str, object]) -> Attribute:
    return survey(a=domain).attributes[0]


def value_of(asked: Attribute, cell: str) -> tuple[int | None, str]:
    reader = CellReader(asked, lambda cell: cell.casefold() in {word.casefold() for word in MISSING})
    value = reader.value(cell)
    [how] = reader.told
    return value, how


@pytest.mark.parametrize(
    ("domain", "cell", "value", "how"),
    [
        (CITY, "Köln", 1, ""), (CITY, "1", 2, ""), (CITY, "Ulm", 4, "unlisted"), (CITY, "other", 4, ""),
        (CITY, "1.0", 4, "unlisted"), (CITY, "+1", 4, "unlisted"), (CITY, "NA", None, "missing"),
        (CITY, "Ko\u0308ln", 1, "respelt"), (CITY, "new\u00a0york", 3, "respelt"), (CITY, "Ber\u200blin", 0, "respelt"),
        (CITY, "Веrlin", 0, "respelt"),
        ({"values": ["None", "Dog"]}, "None", 0, ""), ({"values": ["None", "Dog"]}, "NONE", 0, "respelt"),
        (CITY | {"unlisted": "refuse"}, "Ulm", None, "refused"),
        (CITY | {"unlisted": "Berlin"}, "Ulm", 0, "unlisted"), (SIZE, "-", None, "missing"),
        ({"values": ["yes", "no"]}, "maybe", None, "refused"), ({"values": ["yes", "no"]}, "Yes", 0, "respelt"),
        ({"values": ["Yes", "yes"]}, "yes", 1, ""), ({"values": ["Yes", "yes"]}, "YES", None, "refused"),
        (SIZE, "3", 3, ""), (SIZE, "3.00", 3, ""), (SIZE, "9" * 15, 3, "nearest"),
        (SIZE, "7", 3, "nearest"), (SIZE, "-1", 0, "nearest"), (SIZE, "1.5", None, "refused"), (SIZE, "two", None, "refused"),
        (SIZE | {"outside": "refuse"}, "7", None, "refused"), (SIZE | {"outside": "refuse"}, "3", 3, ""),
        (BINS, "10", 1, ""), (BINS, "9.99", 0, ""), (BINS, "20.5", 1, ""), (BINS, "20.6", 1, "nearest"),
        (BINS, "-1e9", 0, "nearest"), (BINS, "x", None, "refused"), (BINS, "inf", None, "refused"),
        (SIZE, "02", None, "refused"), (BINS | {"outside": "refuse"}, "20.6", None, "refused"),
    ],
)  # fmt: skip
def test_a_cell_becomes_a_value(domain: Mapping[str, object], cell: str, value: int | None, how: str) -> None:
    asked = attribute(domain)
    assert value_of(asked, cell) == (value, how)
    if how not in ("respelt", "missing") and ("values" in domain or number_text(cell) == cell):
        on_a_device: int | None
        try:
            on_a_device = value_index(asked, cell)
        except ValueError:
            on_a_device = None
        assert on_a_device == value


def write(folder: Path, content: str | bytes) -> Path:
    path = folder / "people.csv"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def test_every_row_is_a_person_with_the_same_values_at_all_steps(tmp_path: Path) -> None:
    path = write(tmp_path, "\ufeffid;City ;kids;h cm\n7;Ulm;1.0;8\n\n7; Berlin ;NA;12,5\n8;;9;99\n")
    said: list[str] = []
    source = read_people(path, survey(City=CITY, kids=SIZE, h_cm=BINS), n_steps=3, tell=said.append)
    assert (source.n_people, source.n_steps) == (3, 3)
    for step in range(3):
        found = [tuple(part.tolist() for part in source.at(step, a)) for a in range(3)]
        assert found == [([0, 1], [4, 0]), ([0, 2], [1, 3]), ([0, 2], [0, 1])]
        assert all(part.dtype == np.int64 for part in source.at(step, 0))
    assert said == [
        f"{path}: 3 people, one in each row, with the same values at all 3 steps.",
        "City: 1 cell with a text that the survey does not list became other, as on a device.",
        "kids: 1 cell counts as no answer: NA. The option --missing replaces the list of such words.",
        "kids: 1 number outside the survey's integers 0 … 3 became the nearest value, as on a device.",
        "h_cm: 1 number outside the survey's numbers 0 … 20.5 became the nearest value, as on a device.",
        "h_cm: 1 cell is not a value of the survey (numbers 0 … 20.5): no answer. A device refuses such values, and its "
        "silence can reveal them.",
    ]


KIDS = survey(kids=SIZE)


def test_numbers_of_any_spelling_have_one_text() -> None:
    assert {number_text(cell) for cell in ("100", "100.0", "+1e2", "1.00e2")} == {"100"}
    assert number_text("0.12345678901234567890") == "0.1234567890123456789"
    assert number_text("1234567890123456") is None  # a card's number
    assert [number_text(cell) for cell in ("-0.0", ".5", "5.", "", ".", "-", "1,5", "1e999", "٣")] == [
        "0", "0.5", "5", None, None, None, None, None, None
    ]  # fmt: skip


# ---- forms of tables

TABLES = {
    "semicolons, commas in quoted names": '"Car, or bus?";"kids";\nx;1;\ny;2;\n',
    "tabs, commas in names": "Car, bus, or walk\tkids\nx\t1\ny\t2\n",
    "vertical bars": "a|kids\nx|1\ny|2\n",
    "a line that names the separator": "sep=;\r\na;kids\r\nx, y, z;1\r\ny;2\r\n",
    "a line that names the separator, saved again": "SEP=;;\na;kids\nx, y, z;1\ny;2\n",
    "carriage returns": "a,kids\rx,1\ry,2\r",
    "names without a column, and cells without a name": ",kids,,\n1,1,,x\n2,2\n",
    "separators at the end of rows": "a,kids\nx,1,,\ny,2,\n",
    "empty rows": ",\na,kids\n,\nx,1\n \u00a0,\n\ny,2\n,,,\n",
    "a name on two lines": '"a\nb","kids"\nx,1\ny,2\n',
    "blanks of all kinds": "a,\u00a0kids\u200b\nx,\u2009 1\u00a0\ny,\ufeff2\n",
    "names that are equal": "a,a,kids\nx,y,1\nx,y,2\n",
    "names in another alphabet": "имя,年齢,kids\nx,y,1\nx,y,2\n",
    "an empty column with a long name": f"{'long ' * 40},kids\n,1\n,2\n",
}


@pytest.mark.parametrize("text", TABLES.values(), ids=TABLES)
def test_tables_of_many_forms_are_read(tmp_path: Path, text: str) -> None:
    source = read_people(write(tmp_path, text), survey(kids=SIZE))
    assert (source.n_people, source.at(0, 0)[1].tolist()) == (2, [1, 2])


@pytest.mark.parametrize(
    "text",
    [
        ",person,step,kids\n1,a,0,1\n2,a,1,2\n", ",step,kids\na,0,1\na,1,2\n",
        "person,step,children,,\na,0,1\na,1,2,,\n",
    ],
)  # fmt: skip
def test_a_column_without_a_name_does_not_hide_the_steps(tmp_path: Path, text: str) -> None:
    source = read_people(write(tmp_path, text), survey(kids=SIZE))
    assert [[part.tolist() for part in source.at(step, 0)] for step in range(source.n_steps)] == [[[0], [1]], [[0], [2]]]


def test_names_that_no_attribute_can_have_are_numbered(tmp_path: Path) -> None:
    question = "In the last four weeks, how satisfied were you with these parts of our service? "
    path = write(tmp_path, f'возраст,"{question}[Speed]","{question}[Price]",column_1,a b,a-b\n1,2,3,4,5,6\n')
    with open_table(path) as table:
        assert table.names == ["column_1", "column_2", "column_3", "column_4", "a_b", "a-b"]
        assert [table.find(name) for name in ("возраст", "column_1", "column_4", "a b")] == [0, 3, 3, 4]


@pytest.mark.parametrize("steps", [True, False])
def test_both_forms_have_one_rule_for_cells(tmp_path: Path, steps: bool) -> None:
    cells = ["car", "Car", " CAR ", "NA", "n/a", "", "#N/A", "None", "-", "tram"]
    rows = [f"u{i}, 0 ,{cell}" if steps else f"u{i},{cell}" for i, cell in enumerate(cells)]
    said: list[str] = []
    path = write(tmp_path, "\n".join(["person,step,mode" if steps else "person,mode", *rows]))
    source = read_people(path, survey(mode={"values": ["car", "other"]}), tell=said.append)
    assert source.n_people == len(cells)
    assert [part.tolist() for part in source.at(0, 0)] == [[0, 1, 2, 9], [0, 0, 0, 1]]
    assert [line.split(". ")[0] for line in said[1:]] == [
        "mode: 5 cells count as no answer: #N/A, -, NA, None, n/a",
        "mode: 1 cell with a text that the survey does not list became other, as on a device.",
        "mode: 2 cells are listed values in another spelling",
    ]  # fmt: skip
    kept = read_people(path, survey(mode={"values": ["car", "other"]}), missing=["NA"])
    assert kept.at(0, 0)[0].tolist() == [0, 1, 2, 4, 6, 7, 8, 9]


def test_a_date_gives_the_step_by_the_clock_of_the_survey(tmp_path: Path) -> None:
    """The survey's steps take an hour."""
    asked = replace(survey(kids=SIZE), step_seconds=3600)
    text = "".join(f"{asked.start.date()}{time},{i}\n" for i, time in enumerate(("", " 00:59", "T03:00+02:00", "T03:00:00Z")))
    path = write(tmp_path, "who,step,kids\n" + "".join(f"p{line[-2]},{line}" for line in text.splitlines(keepends=True)))
    source = read_people(path, asked)
    assert [source.at(step, 0)[1].tolist() for step in range(source.n_steps)] == [[0, 1], [2], [], [3]]


@pytest.mark.parametrize("rows", [200, 5000])
def test_a_pipe_gives_all_rows(tmp_path: Path, rows: int) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    text = "person,step,kids,version\n" + "".join(f"participant-number-{i},0,{i % 4},{i % 2 + 1}\n" for i in range(rows))
    writer = threading.Thread(target=pipe.write_text, args=(text,))
    writer.start()
    source = read_people(pipe, KIDS)
    writer.join()
    assert (source.n_people, len(source.at(0, 0)[0])) == (rows, rows)
