"""Tests that simulated values follow the stated chain, files are read correctly, and errors show no contents."""

import csv
import traceback
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from scipy.stats import chisquare

from ldpstream.producers.people_file import read_people
from ldpstream.producers.table_file import DataError
from ldpstream.producers.values import STAY, MarkovValues, popularity
from ldpstream.surveys import Survey, load_survey
from ldpstream.surveys.texts import plain
from tests.producers.samples import level, make_survey
from tests.small_survey import small_survey

ROOT = Path(__file__).parents[2]
SECRET = "8x7secret"
FALSE_ALARM = 1e-6

TWO = make_survey({"mode": (7, [level("GRR")]), "zone": (20, [level("GRR")])})


def one(**domain: object) -> Survey:
    """A survey of the attribute `mode`."""
    return small_survey({"name": "mode", "level": [level("GRR")], **domain}, name="one")


STRICT = replace(TWO, attributes=tuple(replace(a, outside="refuse") for a in TWO.attributes))
ONE = one(values=("car", "bus", "on, foot"))

# ---- simulated values


def test_everybody_has_a_value_of_every_attribute_at_every_step() -> None:
    source = MarkovValues(TWO, 50, 4, 1)
    for step in range(source.n_steps):
        for attribute, k in ((0, 7), (1, 20)):
            people, values = source.at(step, attribute)
            assert people.tolist() == list(range(50))
            assert values.dtype == people.dtype == np.int64
            assert values.min() >= 0
            assert values.max() < k


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 1)), max_size=12))
def test_simulated_values_do_not_depend_on_earlier_calls(asked: list[tuple[int, int]]) -> None:
    source = MarkovValues(TWO, 20, 6, 3)
    for step, attribute in asked:
        source.at(step, attribute)
    for step, attribute in [(5, 0), (2, 1)]:
        _, values = source.at(step, attribute)
        assert values.tolist() == MarkovValues(TWO, 20, 6, 3).at(step, attribute)[1].tolist()


def test_simulated_values_follow_the_stated_chain() -> None:
    """With random seeds, each of the two tests would have a false-alarm rate of 1e-6."""
    n, k = 200_000, 20
    source = MarkovValues(TWO, n, 2, 20260105)
    (_, first), (_, second) = source.at(0, 1), source.at(1, 1)
    assert chisquare(np.bincount(first, minlength=k), n * popularity(k, 0)).pvalue > FALSE_ALARM
    # control: six steps later the popularity has drifted
    assert chisquare(np.bincount(first, minlength=k), n * popularity(k, 6)).pvalue < FALSE_ALARM

    def stays(probability: float) -> float:
        same = probability + (1 - probability) * popularity(k, 1)[first]
        return float(((first == second) - same).sum() / np.sqrt((same * (1 - same)).sum()))

    assert abs(stays(STAY)) < 4.9
    assert abs(stays(STAY + 0.01)) > 4.9


@pytest.mark.parametrize("arguments", [(0, 1, 1), (1, 0, 1), (1, 1, -1), (True, 1, 1), (1, 2.0, 1)])
def test_impossible_populations_are_refused(arguments: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match="must be an integer in"):
        MarkovValues(TWO, *arguments)


# ---- a file


def write(folder: Path, content: str | bytes) -> Path:
    path = folder / "values.csv"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def entries(survey: Survey, path: Path) -> dict[tuple[int, int, int], int]:
    """(step, attribute, person) -> value."""
    source = read_people(path, survey)
    found: dict[tuple[int, int, int], int] = {}
    for step in range(source.n_steps):
        for attribute in range(len(survey.attributes)):
            people, values = source.at(step, attribute)
            assert people.dtype == values.dtype == np.int64
            found |= {(step, attribute, person): value for person, value in zip(people.tolist(), values.tolist())}
    return found


PERSON = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=5).map(plain).filter(bool)


@given(
    st.dictionaries(
        st.tuples(PERSON, st.integers(0, 11)),
        st.tuples(st.none() | st.integers(0, 6), st.integers(0, 19)),
        min_size=1,
    ).filter(lambda rows: any(mode is not None for mode, _ in rows.values()))
)
def test_a_written_file_is_read_back(
    tmp_path_factory: pytest.TempPathFactory, rows: dict[tuple[str, int], tuple[int | None, int]]
) -> None:
    path = tmp_path_factory.mktemp("values") / "values.csv"
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["person", "step", "mode", "zone"])
        writer.writerows([person, step, mode, zone] for (person, step), (mode, zone) in rows.items())
    numbers = {person: i for i, person in enumerate(dict.fromkeys(person for person, _ in rows))}
    expected: dict[tuple[int, int, int], int] = {}
    for (person, step), pair in rows.items():
        expected |= {(step, a, numbers[person]): value for a, value in enumerate(pair) if value is not None}
    assert entries(TWO, path) == expected


BAD = {
    "empty": (ONE, b"", "is empty"),
    "header only": (ONE, "p,step,v\n", "no cell of column 3 is a value of the attribute mode (3 values"),
    "one attribute without a value": (TWO, "p,step,mode,zone\na,0,,1\n", "no cell of column 3 is a value"),
    "two columns": (ONE, f"p,step\n{SECRET},0\n", "line 1: none of its 2 columns is named mode"),
    "missing attribute": (TWO, f"p,step,mode,{SECRET}\n{SECRET},0,1,2\n", "line 1: none of its 4 columns is named zone"),
    "attribute twice": (TWO, "p,step,mode,zone,zone\n", "line 1: columns 4 and 5 are named zone"),
    "short row": (ONE, f"p,step,v\na,0,car\n{SECRET},0\n", "line 3: has 2 columns, the header 3"),
    "long row": (ONE, f"p,step,v\n{SECRET},0,car,x\n", "line 2: has 4 columns, the header 3"),
    "step is a text": (ONE, f"p,step,v\n{SECRET},{SECRET},car\n", "line 2: the step (column 2) must be an integer"),
    "step is a fraction": (ONE, "p,step,v\na,1.0,car\n", "line 2: the step (column 2) must be an integer, such as 0 and"),
    "step in other digits": (ONE, "p,step,v\na,١,car\n", "line 2: the step"),
    "endless step": (ONE, f"p,step,v\na,{'9' * 5000},car\n", "line 2: the step"),
    "step before the first": (ONE, f"p,step,v\na,0,car\n{SECRET},-1,car\n", "line 3: the step (column 2) must be from 0"),
    "step is a date without signs": (ONE, "p,step,v\na,20260105,car\n", "line 2: the step (column 2) must be from 0"),
    "date before the start": (ONE, "p,step,v\na,2025-12-31,car\n", "a date counts from the survey's start, 20"),
    "date in another order": (ONE, "p,step,v\na,05.01.2026,car\n", "or a date such as 2026-01-05"),
    "person is empty": (ONE, "p,step,v\n,0,car\n", "line 2: the person is empty"),
    "value too large": (STRICT, f"p,step,zone,mode\n{SECRET},0,20,1\n", "no cell of column 3 is a value of the attribute zone"),
    "line counted over quoted line ends": (ONE, f'p,step,v\n"a\nb",0,car\n{SECRET},0\n', "line 4: has 2 columns"),
    "same person twice": (
        ONE, f"p,step,v\n{SECRET},0,car\nb,0,bus\n{SECRET},1,car\n{SECRET},0,bus\n{SECRET},0,bus\n", "line 5: a second row"
    ),
    "not UTF-8": (ONE, b"p,step,v\na,0,car\n8x7secret,0,\xff\n", "line 3: not a text in UTF-8; save the table as CSV in UTF-8"),
    "UTF-16": (ONE, "p,step,v\na,0,car\n".encode("utf-16-le"), "line 1: not a text in UTF-8; save the table as CSV"),
    "misspelt": (TWO, "p,step,mod,zone\na,0,1,2\n", "line 1: none of its 4 columns is named mode"),
    "a workbook": (ONE, b"PK\x03\x04\x14\0\x06\0", "line 1: not a text in UTF-8; save the table as CSV"),
    "quote not closed": (ONE, f'p,step,v\na,0,car\n{SECRET},0,"car\nb,0,car\n', "line 3: not CSV: unexpected end of data"),
    "inches": (ONE, 'p,step,v\na,0,car\nb,0,"7" large\n', "line 3: not CSV: ',' expected after '\"'"),
    "comments": (ONE, "# of 2026\np,step,v\na,0,car\n", "none of its 1 column is named mode; the first line must name them"),
}  # fmt: skip


@pytest.mark.parametrize(("survey", "content", "message"), BAD.values(), ids=BAD)
def test_a_bad_file_is_one_clear_error_without_its_contents(
    tmp_path: Path, survey: Survey, content: str | bytes, message: str
) -> None:
    path = write(tmp_path, content)
    with pytest.raises(DataError) as caught:
        read_people(path, survey)
    text = str(caught.value)
    assert text.startswith(str(path))
    assert message in text
    assert "\n" not in text
    assert SECRET not in "".join(traceback.format_exception(caught.value)).replace(str(path), "")


def test_ms_fimu_is_read_as_published(data_folder: Path, tmp_path: Path) -> None:
    path, named = data_folder / "ms_fimu_visits.csv", tmp_path / "visits.csv"
    named.write_text(path.read_text().replace("Date ID", "step", 1))
    source = read_people(named, load_survey(ROOT / "surveys" / "samples" / "ms_fimu.toml"))
    assert (source.n_people, source.n_steps) == (88_935, 8)
    days = [source.at(step, 0) for step in range(1, 8)]
    assert sum(len(people) for people, _ in days) == 190_345
    assert all(len(np.unique(people)) == len(people) for people, _ in days)
    with path.open() as file:
        labels = [line.rstrip("\n").split(",")[1:] for line in file][1:]
    for step in (0, 6):
        expected = sum(date == str(step + 1) and label == "Duration 3h" for date, label in labels)
        assert np.count_nonzero(days[step][1] == 1) == expected
