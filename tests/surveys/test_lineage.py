"""The surveys that a survey replaces, and the attributes whose histories join."""

from typing import Any

import pytest

from ldpstream.surveys import Survey
from ldpstream.surveys.differences import differences
from ldpstream.surveys.life.lineage import Join, join
from tests.small_survey import small_survey

LEVEL = [{"name": "l", "mechanism": "GRR", "eps": 1.0}]


def survey(name: str = "old", replaces: Survey | None = None, **keys: Any) -> Survey:
    head = {"name": name, "window_steps": 3, "lateness_steps": 1}
    head |= {} if replaces is None else {"replaces": replaces.fingerprint.hex()}
    return small_survey(asked(values=["x", "y", "z"]), **head | keys)


def asked(name: str = "a", **keys: Any) -> dict[str, Any]:
    return {"name": name, "level": LEVEL, **keys}


OLD = survey()


def joined(old: dict[str, Any], new: dict[str, Any]) -> Join:
    return join(survey(attribute=[asked(**old)]), survey("new", attribute=[asked(**new)]), "a")


@pytest.mark.parametrize(
    ("old", "new", "places", "reason"),
    [
        ({"values": ["x", "y"]}, {"values": ["x", "y"]}, (0, 1), ""),
        ({"values": ["x", "y"]}, {"values": ["y", "x"], "ordered": True}, (1, 0), ""),
        ({"values": ["x", "y"]}, {"values": ["w", "y", "x"]}, (None, 1, 0), "added: w; earlier shares unknown"),
        ({"values": ["x", "y"]}, {"values": ["y", "ex"], "aliases": {"x": "ex"}}, (1, 0), "x is now ex"),
        ({"values": ["x", "y", "z"]}, {"values": ["x", "y"]}, None, "removed: z"),
        ({"values": ["x", "y"]}, {"values": ["y", "ex"]}, None, "removed: x"),
        ({"values": ["x", "ex"]}, {"values": ["y", "ex"], "aliases": {"x": "ex"}}, None, "two values became one: ex"),
        ({"size": 2}, {"size": 4}, (0, 1, None, None), "added: 2, 3; earlier shares unknown"),
        ({"size": 9}, {"size": 2}, None, "removed: 2, 3, 4, 5, 6 and 2 more"),
        ({"size": 2}, {"values": ["0", "1"]}, None, "one survey has `values`, the other has `size`"),
        ({"bins": [0, 1, 2]}, {"bins": [0.0, 1.0, 2.0]}, (0, 1), ""),
        ({"bins": [0, 1, 2]}, {"bins": [0, 1, 2, 3]}, None, "the bins have other edges"),
        ({"name": "b", "size": 2}, {"size": 2}, None, "old has no attribute a"),
    ],
)
def test_an_attribute_joins_if_its_values_mean_the_same(
    old: dict[str, Any], new: dict[str, Any], places: tuple[int | None, ...] | None, reason: str
) -> None:
    found = joined(old, new)
    assert found.joined is found.windows is (places is not None)
    assert found.places == (places or ())
    assert (reason in found.reason) if reason else found.reason == ""


def test_another_length_of_steps_or_windows_is_another_meaning() -> None:
    longer = join(OLD, survey("new", step_seconds=61), "a")
    assert (longer.joined, longer.windows, longer.reason) == (False, False, "a step had 60 s and now has 61 s")
    wider = join(OLD, survey("new", window_steps=4), "a")
    assert (wider.joined, wider.windows, wider.places) == (True, False, (0, 1, 2))
    assert "they had 3 steps and now have 4" in wider.reason


def test_differences_name_every_key_and_say_which_change_the_fingerprint() -> None:
    level = [{"name": "l", "mechanism": "GRR", "eps": 0.5}, {"name": "m", "mechanism": "auto", "eps_inf": 2.0, "eps_1": 1.0}]
    new = survey("new", OLD, attribute=[asked(values=["x", "y", "w"], aliases={"z": "w"}, level=level)], title="T", ends=5)
    found = differences(OLD, new)
    assert [(one.key, one.old, one.new) for one in found if one.fingerprint] == [
        ("name", "old", "new"),
        ("attribute.a.levels", ["l"], ["l", "m"]),
        ("attribute.a.values", ["x", "y", "z"], ["x", "y", "w"]),
        ("attribute.a.level.l.eps", 1, 0.5),
        ("ends", None, 5),
        ("attribute.a.level.m.eps_1", None, 1),
        ("attribute.a.level.m.eps_inf", None, 2),
        ("attribute.a.level.m.mechanism", None, "L-GRR"),
    ]
    others = [("title", None, "T"), ("replaces", None, OLD.fingerprint.hex()), ("attribute.a.aliases", None, {"z": "w"})]
    assert [(one.key, one.old, one.new) for one in found if not one.fingerprint] == others
    assert differences(OLD, survey()) == []
