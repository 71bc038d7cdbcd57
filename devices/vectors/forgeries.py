"""Device surveys that a device must refuse: each is a correct device survey with one fault.

The faults are written by hand from the checks of docs/reference/write_a_device.md.
"""

import copy
import hashlib
import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from ldpstream.surveys import Survey

Json = dict[str, Any]


def forged(survey: Survey, split: Survey) -> Iterator[dict[str, Any]]:
    """The forged device surveys, each with the name of its fault and the number of the check that fails first.

    Args:
        survey: the survey to forge.
        split: a survey with a divided budget (spl), for the faults that concern the division.
    """
    for correct, forgeries in ((survey, FORGERIES), (split, SPLIT_FORGERIES)):
        document = json.loads(msgspec.json.encode(correct.device_survey))
        for (check, fault), forge in forgeries.items():
            changed = copy.deepcopy(document)
            forge(changed)
            yield {"fault": fault, "check": check, "survey": changed}


def _coin(survey: Json, a: int, level: int, part: str, which: str, digits: str) -> None:
    """Changes a coin only among the parameters."""
    survey["mechanisms"][a][level]["coins"][part][which]["digits"] = digits


def _both(survey: Json, a: int, level: int, part: str, which: str, digits: str) -> None:
    """Changes a coin among the parameters and in the canonical text."""
    _coin(survey, a, level, part, which, digits)
    canonical = json.loads(survey["canonical"])
    stated = canonical["attribute"][a]["level"][level]["coins"][part][which]
    (answer,) = stated
    stated[answer] = float(f"{int(digits or '0', 16) / 256 ** (len(digits) // 2):.6g}")
    _publish(survey, json.dumps(canonical, separators=(",", ":")))


def _state(survey: Json, key: str, loss: float) -> None:
    """Replaces the loss at the first such key of the canonical text."""
    before, after = survey["canonical"].split(key, 1)
    _publish(survey, f"{before}{key}{loss}{re.sub('^[0-9.]+', '', after)}")


def _change(survey: Json, before: str, after: str) -> None:
    """Changes the canonical text, its pin and its fingerprint."""
    assert before in survey["canonical"]
    _publish(survey, survey["canonical"].replace(before, after, 1))


def _publish(survey: Json, canonical: str) -> None:
    pin = hashlib.sha256(canonical.encode()).hexdigest()
    survey.update(canonical=canonical, pin=pin, fingerprint=pin[:16])


FORGERIES: dict[tuple[int, str], Callable[[Json], Any]] = {
    (1, "fingerprint"): lambda s: s.update(fingerprint="00" * 8),
    (1, "canonical"): lambda s: s.update(canonical=s["canonical"] + " "),
    (5, "memo"): lambda s: _both(s, 0, 0, "memo", "keep", "0001"),
    (5, "report"): lambda s: _both(s, 0, 0, "report", "keep", "0001"),
    (5, "bits"): lambda s: _both(s, 2, 1, "memo", "zero", "0001"),
    (5, "one-time bits"): lambda s: _both(s, 1, 2, "report", "zero", "0001"),
    (5, "set"): lambda s: _both(s, 2, 0, "report", "with_value", "0001"),
    (2, "k"): lambda s: s["mechanisms"][0][0].update(k=7),
    (2, "more values than k"): lambda s: _change(s, '"size":6}', '"size":7}'),
    (2, "steps of 0 seconds"): lambda s: _change(s, '"step_seconds":3600', '"step_seconds":0'),
    (2, "a negative lateness"): lambda s: _change(s, '"lateness_steps":1', '"lateness_steps":-1'),
    (2, "g"): lambda s: s["mechanisms"][1][1].update(g=2, digits=9, functions=512),
    (2, "functions"): lambda s: s["mechanisms"][1][1].update(functions=7),
    (2, "no stride"): lambda s: s["mechanisms"][1][1].pop("stride"),
    (2, "a stride of 0"): lambda s: s["mechanisms"][1][1].update(stride=0),
    (2, "a negative stride"): lambda s: s["mechanisms"][1][1].update(stride=-1),
    (2, "a stride of k"): lambda s: s["mechanisms"][1][1].update(stride=300),
    (2, "a stride with a common factor"): lambda s: s["mechanisms"][1][1].update(stride=185),
    (1, "no format"): lambda s: _change(s, '"format":3,', ""),
    (1, "a later format"): lambda s: _change(s, '"format":3,', '"format":4,'),
    (1, "an earlier format"): lambda s: _change(s, '"format":3,', '"format":2,'),
    (1, "an unknown rule for numbers outside"): lambda s: _change(s, '"outside":"nearest"', '"outside":"drop"'),
    (1, "a value for other texts that is not listed"): lambda s: _change(s, '"outside":"nearest"', '"unlisted":"other"'),
    (2, "another stride"): lambda s: s["mechanisms"][1][1].update(stride=s["mechanisms"][1][1]["stride"] % 300 + 6),
    (2, "another polynomial"): lambda s: s["mechanisms"][1][1]["field"].update(polynomial=[2, 1]),
    (3, "a coin that loses less"): lambda s: _coin(s, 1, 2, "report", "zero", "70"),
    (2, "a fraction as stride"): lambda s: s["mechanisms"][1][1].update(stride=184.5),
    (2, "omega"): lambda s: s["mechanisms"][2][0].update(omega=1),
    (2, "every step"): lambda s: s["mechanisms"][0][0].update(every_steps=2),
    (2, "lifetime"): lambda s: s["mechanisms"][0][0].update(lifetime_reports=2),
    (2, "mechanism"): lambda s: s["mechanisms"][0][0].update(mechanism="L-SUE"),
    (2, "levels"): lambda s: s["mechanisms"][0].append(s["mechanisms"][0][0]),
    (3, "one round of two"): lambda s: s["mechanisms"][0][0]["coins"].pop("memo"),
    (3, "another kind of coin"): lambda s: s["mechanisms"][0][0].update(
        coins={"report": {"guess": {"digits": "80", "inverted": False}}}
    ),
    (3, "the larger probability"): lambda s: _both(s, 0, 0, "memo", "keep", "81"),
    (4, "too large a loss"): lambda s: _state(s, '"eps":', 701),
    (5, "a certain coin"): lambda s: _both(s, 2, 0, "report", "with_value", ""),
    (3, "a coin that differs"): lambda s: _coin(s, 0, 0, "report", "keep", "0001"),
    (4, "a negative loss"): lambda s: _state(s, '"eps":', -5),
    (4, "no loss"): lambda s: _state(s, '"eps":', 0),
    (5, "a loss beyond the promise"): lambda s: _state(s, '"eps":', 4.9),
}
SPLIT_FORGERIES: dict[tuple[int, str], Callable[[Json], Any]] = {
    (4, "too large a loss before the division"): lambda s: _state(s, '"eps_inf":', 701),
    (5, "a budget that is not divided"): lambda s: _state(s, '"eps_1":', 1),
}
