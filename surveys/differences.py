"""The differences between two surveys, key by key."""

import json
from datetime import UTC
from typing import Any, NamedTuple

from ldpstream.surveys.canonical import DERIVED
from ldpstream.surveys.survey import Survey

# Devices need none of these keys: the first are keys of a survey, the second of an attribute.
FOR_PEOPLE = ("title", "description", "purpose", "owner", "contact", "retention_steps", "replaces", "crowd")
FOR_ESTIMATES = ("ordered", "unit", "aliases")


class Difference(NamedTuple):
    """One key whose value differs.

    Attributes:
        key: such as ``step_seconds``, or ``attribute.mode.level.standard.eps_1`` with the names of attribute and level.
        old, new: the values of the key; None for a survey without the key.
        fingerprint: true if the key changes the fingerprint.
    """

    key: str
    old: Any
    new: Any
    fingerprint: bool


def differences(old: Survey, new: Survey) -> list[Difference]:
    """The keys whose values differ: first those of the canonical text, then those that devices need not know.

    Leaves out keys that follow from others: `format`, and a level's keys `DERIVED`.
    Mechanisms are compared as resolved, never as ``auto``. `start` is a text in UTC, and `ends` is the number of steps.
    """
    return [*_changed(_canonical(old), _canonical(new), True), *_changed(_others(old), _others(new), False)]


def _changed(before: dict[str, Any], after: dict[str, Any], fingerprint: bool) -> list[Difference]:
    keys = [key for key in dict.fromkeys([*before, *after]) if before.get(key) != after.get(key)]
    return [Difference(key, before.get(key), after.get(key), fingerprint) for key in keys]


def _canonical(survey: Survey) -> dict[str, Any]:
    keys = json.loads(survey.canonical)
    del keys["format"]  # the format follows from the other keys
    keys["start"] = survey.start.astimezone(UTC).isoformat()
    keys |= {f"cohort.{key}": value for key, value in keys.pop("cohort", {}).items()}
    attributes = keys.pop("attribute")
    keys["attributes"] = [attribute["name"] for attribute in attributes]
    for attribute in attributes:
        prefix, levels = f"attribute.{attribute.pop('name')}", attribute.pop("level")
        keys[f"{prefix}.levels"] = [level["name"] for level in levels]
        keys |= {f"{prefix}.{key}": value for key, value in attribute.items()}
        for level in levels:
            name = level.pop("name")
            keys |= {f"{prefix}.level.{name}.{key}": value for key, value in level.items() if key not in DERIVED}
    return dict(keys)


def _others(survey: Survey) -> dict[str, Any]:
    keys = {key: getattr(survey, key) for key in FOR_PEOPLE}
    for attribute in survey.attributes:
        if attribute.pair is not None:
            continue  # its aliases follow from those of its two attributes
        keys |= {f"attribute.{attribute.name}.{key}": getattr(attribute, key) or None for key in FOR_ESTIMATES}
    return keys
