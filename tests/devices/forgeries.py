"""Device surveys that a device must refuse: each is a correct device survey with one fault.

The faults are written by hand from the checks of docs/write_a_device.md.
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


def forged(survey: Survey) -> Iterator[dict[str, Any]]:
    """The forged device surveys, each with the name of its fault."""
    correct = json.loads(msgspec.json.encode(survey.device_survey))
    for fault, forge in FORGERIES.items():
        document = copy.deepcopy(correct)
        forge(document)
        yield {"fault": fault, "survey": document}


def _coin(survey: Json, a: int, level: int, part: str, which: str, digits: str) -> None:
    survey["mechanisms"][a][level]["coins"][part][which]["digits"] = digits


def _state(survey: Json, key: str, loss: float) -> None:
    """Lets the canonical text state another loss at its first such key."""
    before, after = survey["canonical"].split(key, 1)
    text = f"{before}{key}{loss}{re.sub('^[0-9.]+', '', after)}"
    survey.update(canonical=text, fingerprint=hashlib.sha256(text.encode()).hexdigest()[:16])


def _change(survey: Json, before: str, after: str) -> None:
    """Changes the canonical text, with its fingerprint."""
    assert before in survey["canonical"]
    text = survey["canonical"].replace(before, after, 1)
    survey.update(canonical=text, fingerprint=hashlib.sha256(text.encode()).hexdigest()[:16])


FORGERIES: dict[str, Callable[[Json], Any]] = {
    "fingerprint": lambda s: s.update(fingerprint="00" * 8),
    "canonical": lambda s: s.update(canonical=s["canonical"] + " "),
    "memo": lambda s: _coin(s, 0, 0, "memo", "keep", "0001"),
    "report": lambda s: _coin(s, 0, 0, "report", "keep", "0001"),
    "bits": lambda s: _coin(s, 2, 1, "memo", "zero", "0001"),
    "one-time bits": lambda s: _coin(s, 1, 2, "report", "zero", "0001"),
    "set": lambda s: _coin(s, 2, 0, "report", "with_value", "f0"),
    "k": lambda s: s["mechanisms"][0][0].update(k=7),
    "g": lambda s: s["mechanisms"][1][1].update(g=2, digits=9, functions=512),
    "functions": lambda s: s["mechanisms"][1][1].update(functions=7),
    "no stride": lambda s: s["mechanisms"][1][1].pop("stride"),
    "a stride of 0": lambda s: s["mechanisms"][1][1].update(stride=0),
    "a negative stride": lambda s: s["mechanisms"][1][1].update(stride=-1),
    "a stride of k": lambda s: s["mechanisms"][1][1].update(stride=300),
    "a stride with a common factor": lambda s: s["mechanisms"][1][1].update(stride=185),
    "no format": lambda s: _change(s, '"format":3,', ""),
    "a later format": lambda s: _change(s, '"format":3,', '"format":4,'),
    "an earlier format": lambda s: _change(s, '"format":3,', '"format":2,'),
    "an unknown rule for numbers outside": lambda s: _change(s, '"outside":"nearest"', '"outside":"drop"'),
    "a value for other texts that is not listed": lambda s: _change(s, '"outside":"nearest"', '"unlisted":"other"'),
    "another stride": lambda s: s["mechanisms"][1][1].update(stride=s["mechanisms"][1][1]["stride"] % 300 + 6),
    "another polynomial": lambda s: s["mechanisms"][1][1]["field"].update(polynomial=[2, 1]),
    "a coin that loses less": lambda s: _coin(s, 1, 2, "report", "zero", "70"),
    "a fraction as stride": lambda s: s["mechanisms"][1][1].update(stride=184.5),
    "omega": lambda s: s["mechanisms"][2][0].update(omega=1),
    "every step": lambda s: s["mechanisms"][0][0].update(every_steps=2),
    "lifetime": lambda s: s["mechanisms"][0][0].update(lifetime_reports=2),
    "mechanism": lambda s: s["mechanisms"][0][0].update(mechanism="L-SUE"),
    "levels": lambda s: s["mechanisms"][0].append(s["mechanisms"][0][0]),
    "one round of two": lambda s: s["mechanisms"][0][0]["coins"].pop("memo"),
    "another kind of coin": lambda s: s["mechanisms"][0][0].update(
        coins={"report": {"guess": {"digits": "80", "inverted": False}}}
    ),
    "the larger probability": lambda s: _coin(s, 0, 0, "memo", "keep", "81"),
    "too large a loss": lambda s: _state(s, '"eps":', 701),
    "a certain coin": lambda s: _coin(s, 2, 0, "report", "with_value", ""),
}
