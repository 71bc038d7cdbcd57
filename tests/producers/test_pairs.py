"""Pairs on the device and in simulated populations: the value follows from the values of the two attributes."""

from pathlib import Path

import numpy as np
import pytest

from ldpstream.device import Device
from ldpstream.device.values import index_of
from ldpstream.producers.people_file import read_people
from ldpstream.producers.population import Population
from ldpstream.producers.values import MarkovValues, WithPairs
from ldpstream.surveys import check_envelope
from tests.pair_survey import BOTH, MODE, ONCE, ZONE, pair_survey
from tests.small_survey import small_survey

CLEAR = {"name": "standard", "mechanism": "GRR", "eps": 90.0}  # with a third of it, a report is the value, but for one in 10^12
SPL = small_survey(*(a | {"level": [CLEAR]} for a in (MODE, ZONE, BOTH)), collection="spl")


def reported(envelope: bytes, step: int) -> tuple[str, int]:
    """The attribute and the symbol of an envelope of GRR."""
    found = check_envelope(SPL, envelope, SPL.opens_ms(step))
    return SPL.attributes[found.attribute].name, found.payload[0]


def test_the_device_derives_the_value_of_the_pair(tmp_path: Path) -> None:
    device = Device(SPL, tmp_path / "file", consent="simulated")
    made = device.answer({"mode": "bicycle", "zone": 3}, 5)
    assert {name: reported(envelope, 5) for name, envelope in made.items()} == {
        "mode": ("mode", 2), "zone": ("zone", 1), "mode_by_zone": ("mode_by_zone", 7)
    }  # fmt: skip
    assert device.answer({"zone": 49, "mode": "car"}, 5) == made  # one report for a step
    assert device.report("mode_by_zone", ["car", 1], 5) == made["mode_by_zone"]
    assert len(device.waiting()) == 3


def test_the_memo_of_a_pair_is_that_of_its_combination(tmp_path: Path) -> None:
    survey = pair_survey(collection="spl")
    device = Device(survey, tmp_path / "file", consent="simulated")
    for step in range(6):
        device.answer({"mode": "car", "zone": 1}, step)
    assert device.spent("mode_by_zone").eps_t is not None
    device.answer({"mode": "car", "zone": 3}, 6)
    assert device.spent("mode").eps_t is not None
    assert device.spent("zone").eps_t is None
    memos = survey.mechanisms[2][0].max_memos  # local hashing may give both values one memo
    assert (device.spent("mode_by_zone").eps_t is None) or memos < 9


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({"mode": "car", "mode_by_zone": "car × 0 to 2"}, "mode_by_zone is a pair: give the values of mode and zone"),
        ({"mode": "walk-secret", "zone": 1}, "not a value of the attribute mode"),
        ({"mode": "car", "zone": float("nan")}, "not a value of the attribute zone"),
        ({"modes": "car"}, "attribute must be one of mode, zone, mode_by_zone"),
    ],
)
def test_wrong_answers_are_refused_before_the_first_report(tmp_path: Path, values: dict[str, str | float], told: str) -> None:
    device = Device(SPL, tmp_path / "file", consent="simulated")
    with pytest.raises(ValueError, match=told) as refused:
        device.answer(values, 1)
    assert "secret" not in str(refused.value)
    assert device.waiting() == []


@pytest.mark.parametrize(
    "value", ["car × 0 to 2", 3, ["car"], ["car", 1, 1], {"mode": "car"}, ["secret-7", 1], ["car", "x"], None]
)
def test_the_value_of_a_pair_is_a_list_of_two_values(value: object) -> None:
    with pytest.raises(ValueError, match=r"a pair|not a value") as refused:
        index_of(SPL, "mode_by_zone", value)
    assert "secret" not in str(refused.value)
    assert [index_of(SPL, "mode_by_zone", given) for given in (["bus", 2], ("bus", "99"), [1, 0.5])] == [4, 5, 3]


def test_a_population_answers_pairs_with_the_values_of_its_people() -> None:
    survey = small_survey(*(a | {"level": [CLEAR]} for a in (MODE, ZONE, BOTH)), collection="spl")
    population = Population(survey, MarkovValues(survey, 500, 3, seed=1), seed=2)
    for step in range(3):
        panes = {pane.attribute: pane for pane in population.reports(step)}
        table = panes[2].truth.reshape(3, 3)
        np.testing.assert_array_equal(table.sum(axis=1), panes[0].truth)
        np.testing.assert_array_equal(table.sum(axis=0), panes[1].truth)
        np.testing.assert_array_equal(np.bincount(panes[2].reports, minlength=9), panes[2].truth)


def test_simulated_people_have_dependent_values_of_a_pair_and_the_same_values_alone() -> None:
    with_pair, without = pair_survey(), small_survey(MODE, ZONE)
    source, other = (MarkovValues(s, 20_000, 4, seed=3) for s in (with_pair, without))
    for step in range(4):
        np.testing.assert_array_equal(source.at(step, 0)[1], other.at(step, 0)[1])
        margin = np.bincount(source.at(step, 1)[1], minlength=3) / 20_000
        np.testing.assert_allclose(margin, np.bincount(other.at(step, 1)[1], minlength=3) / 20_000, atol=0.03)
        _, values = WithPairs(with_pair, source).at(step, 2)
        table = np.bincount(values, minlength=9).reshape(3, 3) / 20_000
        assert np.abs(table - np.outer(table.sum(axis=1), table.sum(axis=0))).max() > 0.05


def test_files_of_values_have_no_column_for_a_pair(tmp_path: Path) -> None:
    survey = small_survey(MODE, ZONE, BOTH | {"level": [ONCE]})
    steps, people = tmp_path / "steps.csv", tmp_path / "people.csv"
    steps.write_text("person,step,mode,zone\na,0,bus,1\nb,0,,1\nc,0,car,\nd,0,car,9\na,1,car,3\n")
    people.write_text("mode,zone\nbus,1\n,1\ncar,\ncar,9\n")
    source = WithPairs(survey, read_people(steps, survey))
    found = [[part.tolist() for part in source.at(step, 2)] for step in (0, 1)]
    assert found == [[[0, 3], [3, 2]], [[0], [1]]]
    unchanging = WithPairs(survey, read_people(people, survey, n_steps=2))
    assert [part.tolist() for part in unchanging.at(1, 2)] == [[0, 3], [3, 2]]
