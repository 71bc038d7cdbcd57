"""The canonical text of a survey: what devices and service must agree on, as JSON in the canonical form of RFC 8785.

The text decides how each report is drawn and read. It has the number of its format, the resolved mechanism, never ``"auto"``,
and all parameters that devices get (`surveys.parameters`). If a version draws or reads reports in another way, the fingerprint
therefore differs. The probabilities of the coins have six significant digits, since machines may round the last digits of a
double differently. Raise `FORMAT` if a key of the text changes, or if reports change their meaning and the text does not.
"""

import hashlib
import json
from typing import TYPE_CHECKING, Any

import msgspec
import rfc8785

from ldpstream.mechanisms import Mechanism
from ldpstream.surveys.device_survey import Coin
from ldpstream.surveys.parameters import parameters

if TYPE_CHECKING:
    from ldpstream.surveys.questions import Attribute, Level
    from ldpstream.surveys.survey import Survey

FORMAT = 2
DERIVED = (
    "k",
    "row_bytes",
    "functions",
    "digits",
    "stride",
    "field",
    "coins",
)  # keys of a level that follow from the other keys


def canonical(survey: "Survey") -> str:
    """The canonical text of a survey. `start` is in ms since 1970; the other keys are as in the survey's file.

    A level has the keys of the file and of `Parameters`. `eps`, `eps_inf` and `eps_1` are those of the file, before ``spl``
    divides them. `coins` has for each coin the smaller of its two probabilities, that of ``"yes"`` or of ``"no"``.

    `ends` is always the number of steps. These keys are left out if they have their default: `skew_seconds` (the default is 60,
    or step_seconds if that is less), `ends` (no end), `calibration` (``"exact"``), `every_steps` (1) and `lifetime_reports`
    (no limit). `cohort` is left out without cohorts. Keys that devices need not know are never in the text: see `Survey` and
    `Attribute`.
    """
    document: dict[str, Any] = {
        "format": FORMAT,
        "name": survey.name,
        "start": survey.start_ms,
        "step_seconds": survey.step_seconds,
        "window_steps": survey.window_steps,
        "lateness_steps": survey.lateness_steps,
        "collection": survey.collection,
        "attribute": [_attribute(a, built) for a, built in zip(survey.attributes, survey.mechanisms, strict=True)],
    }
    if survey.skew_ms != 1000 * min(60, survey.step_seconds):
        document["skew_seconds"] = survey.skew_seconds
    if survey.n_steps is not None:
        document["ends"] = survey.n_steps
    if (cohort := survey.cohort) is not None:
        document["cohort"] = {"name": cohort.name, "values": cohort.values, "least": cohort.least}
    return rfc8785.dumps(document).decode()


def former_fingerprint(survey: "Survey") -> bytes:
    """The fingerprint of the survey's canonical text in format 1, which lacks what decides how a report is read."""
    document = json.loads(canonical(survey))
    del document["format"]
    for level in (level for attribute in document["attribute"] for level in attribute["level"]):
        for key in DERIVED:
            level.pop(key, None)
    return hashlib.sha256(rfc8785.dumps(document)).digest()[:8]


def _attribute(attribute: "Attribute", built: tuple[Mechanism, ...]) -> dict[str, Any]:
    levels = [_level(level, m) for level, m in zip(attribute.levels, built, strict=True)]
    domain = {"values": attribute.values, "size": attribute.size, "bins": attribute.bins}
    return {"name": attribute.name, "level": levels} | _given(domain)


def _level(level: "Level", m: Mechanism) -> dict[str, Any]:
    stated = {
        "eps": level.eps,
        "eps_inf": level.eps_inf,
        "eps_1": level.eps_1,
        "calibration": None if level.calibration == "exact" else level.calibration,
        "every_steps": None if level.every_steps == 1 else level.every_steps,
        "lifetime_reports": level.lifetime_reports,
    }
    needed = parameters(m)
    rounds = {name: {key: _probability(coin) for key, coin in coins.items()} for name, coins in needed.coins.items()}
    return {"name": level.name} | _given(msgspec.to_builtins(needed) | {"coins": rounds} | stated)


def _probability(coin: Coin) -> dict[str, float]:
    smaller = float(f"{int(coin.digits, 16) / 256 ** (len(coin.digits) // 2):.6g}")
    return {"no" if coin.inverted and smaller != 0.5 else "yes": smaller}


def _given(keys: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in keys.items() if value is not None}
