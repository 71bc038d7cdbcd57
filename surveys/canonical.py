"""The canonical text of a survey: what devices and service must agree on, as JSON in the canonical form of RFC 8785.

The text holds the resolved mechanism, never ``"auto"``, with the number `g` of hashed symbols, the size `omega` of the set or
the `width` of the wave. If a later version resolves ``"auto"`` differently, the fingerprint differs too. A key that is absent
or has its default value is left out, so a new optional key changes no old fingerprint.
"""

from typing import TYPE_CHECKING, Any

import rfc8785

from mechanisms import Mechanism
from mechanisms.local_hashing import LocalHashing, LongitudinalHashing
from mechanisms.square_wave import SquareWave
from mechanisms.subset import SubsetSelection

if TYPE_CHECKING:
    from surveys.questions import Attribute, Level
    from surveys.survey import Survey


def canonical(survey: "Survey") -> str:
    """The canonical text of a survey. `start` is in ms since 1970; the other keys are as in the survey's file.

    `ends` is always the number of steps. These keys are left out if they have their default: `skew_seconds` (the default is 60,
    or step_seconds if that is less), `ends` (no end), `calibration` (``"exact"``), `every_steps` (1) and `lifetime_reports`
    (no limit). `cohort` is left out without cohorts. Keys that devices need not know are never in the text: see `Survey` and
    `Attribute`.
    """
    document: dict[str, Any] = {
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


def _attribute(attribute: "Attribute", built: tuple[Mechanism, ...]) -> dict[str, Any]:
    levels = [_level(level, m) for level, m in zip(attribute.levels, built, strict=True)]
    domain = {"values": attribute.values, "size": attribute.size, "bins": attribute.bins}
    return {"name": attribute.name, "level": levels} | _given(domain)


def _level(level: "Level", m: Mechanism) -> dict[str, Any]:
    keys: dict[str, Any] = {
        "eps": level.eps,
        "eps_inf": level.eps_inf,
        "eps_1": level.eps_1,
        "calibration": None if level.calibration == "exact" else level.calibration,
        "every_steps": None if level.every_steps == 1 else level.every_steps,
        "lifetime_reports": level.lifetime_reports,
        "g": m.g if isinstance(m, (LocalHashing, LongitudinalHashing)) else None,
        "omega": m.omega if isinstance(m, SubsetSelection) else None,
        "width": m.width if isinstance(m, SquareWave) else None,
    }
    return {"name": level.name, "mechanism": m.name} | _given(keys)


def _given(keys: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in keys.items() if value is not None}
