"""Questions with several answers on the device and in simulated populations."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ldpstream.device import Device
from ldpstream.device.values import index_of
from ldpstream.mechanisms.sets import code_of
from ldpstream.producers.people_file import read_people
from ldpstream.producers.population import Population
from ldpstream.producers.values import MarkovValues
from ldpstream.surveys import check_envelope
from tests.set_survey import MODE, set_survey

CLEAR = {"name": "standard", "mechanism": "PS-GRR", "eps": 60.0}  # a report is a member, but for one in 10^20


def test_the_value_of_a_set_is_a_list_of_its_values() -> None:
    survey = set_survey()
    for given, members in (
        (["chat", "maps"], [0, 2]), ([], []), (("maps", 0), [0, 2]), ({"music"}, [3]), (["fax", "pager"], [4]),
        (["fax", "other"], [4]), (["chat", "mail", "fax"], [0, 1, 4]),
    ):  # fmt: skip
        assert index_of(survey, "apps", given) == code_of(members), given


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (["chat", "mail", "maps", "music"], "more than 3 values of the attribute apps"),
        (["chat", "mail", "maps", "secret"], "more than 3 values of the attribute apps"),
        (["chat", "chat"], "a value of the attribute apps is given twice"),
        (["chat", 0], "a value of the attribute apps is given twice"),
        ("chat", "apps has several answers: its value must be a list of values"),
        (None, "must be a list"),
        ([None], "not a value of the attribute apps"),
        ([5], "not a value of the attribute apps"),
        ([-1], "not a value of the attribute apps"),
        ([["chat"]], "not a value of the attribute apps"),
    ],
)
def test_a_device_refuses_too_many_values_duplicates_and_other_things(tmp_path: Path, given: Any, told: str) -> None:
    device = Device(set_survey(), tmp_path / "file", consent="simulated")
    with pytest.raises(ValueError, match=told) as refused:
        device.answer({"apps": given}, 1)
    assert "secret" not in str(refused.value)
    assert device.waiting() == []


def test_reports_name_members_of_the_padded_set(tmp_path: Path) -> None:
    survey = set_survey(apps={"level": [CLEAR]})
    for given, padded in ((["chat", "maps"], {0, 2, 5}), ([], {5, 6, 7}), (["mail", "maps", "other"], {1, 2, 4})):
        device, seen = Device(survey, tmp_path / f"{len(given)}", consent="simulated"), set()
        for step in range(60):
            envelope = device.answer({"apps": given}, step)["apps"]
            seen.add(check_envelope(survey, envelope, survey.opens_ms(step)).payload[0])
        assert seen == padded  # a member is missing with a chance below 1e-10


def test_a_memo_belongs_to_its_set_whatever_the_order(tmp_path: Path) -> None:
    device = Device(set_survey(), tmp_path / "file", consent="simulated")
    for step, given in enumerate((["chat", "maps"], ["maps", "chat"], ("maps", "chat"))):
        device.answer({"apps": given}, step)
    assert device.spent("apps").eps_t is not None
    device.answer({"apps": ["chat"]}, 3)
    spent = device.spent("apps")
    assert spent.eps_t is None
    assert spent.eps_sequence == set_survey().mechanisms[0][0].eps_sequence(4).value


def test_a_population_answers_with_the_sets_of_its_people() -> None:
    survey = set_survey(MODE, apps={"level": [CLEAR]}, collection="spl")
    source = MarkovValues(survey, 3000, 3, seed=1)
    codes = source.at(2, 0)[1]
    sizes = np.bitwise_count(codes)
    assert sorted(set(sizes.tolist())) == [0, 1, 2, 3]
    assert codes.max() < 2**5
    truth = np.array([(codes >> v & 1).sum() for v in range(5)] + [(sizes <= c).sum() for c in (2, 1, 0)])
    panes = {pane.attribute: pane for pane in Population(survey, source, seed=2).reports(2)}
    np.testing.assert_array_equal(panes[0].truth, truth)
    assert panes[0].truth.sum() == 3 * 3000
    reports = np.bincount(panes[0].reports, minlength=8)
    assert np.abs(3 * reports - truth).max() < 6 * 3 * np.sqrt(3000 / 4)  # each of 8 tests fails with a chance below 1e-8


def test_files_have_the_values_of_a_set_in_one_cell(tmp_path: Path) -> None:
    survey = set_survey()
    steps, people = tmp_path / "steps.csv", tmp_path / "people.csv"
    steps.write_text("person,step,apps\na,0,chat;maps\nb,0,\nc,0,;\nd,0, fax ; mail \na,1,music\n")
    told: list[str] = []
    source = read_people(steps, survey, tell=told.append)
    assert [part.tolist() for part in source.at(0, 0)] == [[0, 2, 3], [code_of([0, 2]), 0, code_of([1, 4])]]
    assert told == [
        f"{steps}: 4 people in 2 steps.",
        "apps: 1 cell with a text that the survey does not list became other, as on a device.",
    ]
    people.write_text("apps\nchat;maps\n\n;\nchat;chat\nchat;mail;maps;music\nNA\n Chat ;MAPS\n")
    told.clear()
    assert read_people(people, survey, tell=told.append).at(0, 0)[1].tolist() == [code_of([0, 2]), 0, code_of([0, 2])]
    assert [line.split(" ", 3)[1:3] for line in told[1:]] == [["1", "cell"]] * 2 + [["2", "cells"]]  # missing, respelt, refused
