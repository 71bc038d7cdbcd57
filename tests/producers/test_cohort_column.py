"""The people's cohorts from a file of values: which column, which cells, and errors that show no cell."""

from pathlib import Path

import pytest

from ldpstream.producers.people_file import read_people
from ldpstream.producers.population import Population
from ldpstream.producers.table_file import DataError
from ldpstream.surveys import Survey
from tests.small_survey import small_survey

SECRET = "8x7secret"


def survey(*values: str, name: str = "version") -> Survey:
    question = {"name": "a", "size": 4, "level": [{"name": "all", "mechanism": "GRR", "eps": 700.0}]}
    return small_survey(question, collection="spl", cohort={"name": name, "values": values, "least": 2})


def counted(asked: Survey, file: Path, text: str, told: list[str] | None = None) -> list[list[tuple[int, list[int]]]]:
    """Returns each step's cohorts with the number of people with each value."""
    file.write_text(text, encoding="utf-8")
    source = read_people(file, asked, None, 2, ([] if told is None else told).append)
    population = Population(asked, source, 1)
    return [[(pane.cohort, pane.truth.tolist()) for pane in population.reports(step)] for step in range(2)]


def test_people_have_the_cohort_of_their_row(tmp_path: Path) -> None:
    """A text that the survey does not list is "other"."""
    found = counted(survey("1.0", "1.1", "other"), tmp_path / "f", "a,version\n0,1.1\n1,1.0\n2, 1.1 \n3,9\n3,\n")
    assert found == [[(0, [0, 1, 0, 0]), (1, [1, 0, 1, 0]), (2, [0, 0, 0, 2])]] * 2


def test_people_keep_their_cohort_at_every_step(tmp_path: Path) -> None:
    rows = "person,step,a,App version\nx,0,1,1.0\ny,0,2,1.1\nx,1,3,1.0\ny,1,,1.1\n"
    found = counted(survey("1.0", "1.1", name="App_version"), tmp_path / "f", rows)
    assert found == [[(0, [0, 1, 0, 0]), (1, [0, 0, 1, 0])], [(0, [0, 0, 0, 1])]]


def test_without_a_column_the_cohorts_are_drawn_and_the_user_is_told(tmp_path: Path) -> None:
    told: list[str] = []
    text = "a,b\n" + "1,x\n" * 600
    first, second = counted(survey("1.0", "1.1"), tmp_path / "f", text, told)
    assert told[-1] == f"{tmp_path / 'f'}: no column named version; everybody's cohort is drawn."
    sizes = [sum(truth) for _, truth in first]
    assert (sum(sizes), first) == (600, second)
    assert 340 < sizes[0] < 460  # two thirds; the seed is fixed


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f"a,version\n1,1.0\n2,{SECRET}\n", ", line 3: not a cohort of the survey (version: 1.0, 1.1)"),
        ("a,version\n1,1.0\n2,\n", ", line 3: not a cohort of the survey (version: 1.0, 1.1)"),
        ("person,step,a,version\nx,0,1,1.0\nx,1,1,1.1\n", ", line 3: another version than in an earlier row of this person; "
         "a simulated person keeps one cohort"),
        ("a,version,version\n1,1.0,1.0\n", "columns 2 and 3 are named version; only one may be"),
    ],
)  # fmt: skip
def test_a_wrong_cohort_is_one_line_without_the_cell(text: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(DataError) as caught:
        counted(survey("1.0", "1.1"), tmp_path / "f", text)
    assert str(caught.value).endswith(said)
    assert SECRET not in str(caught.value)
