"""Fills the texts of `check.toml` and of the folder `papers`: lines with conditions and placeholders.

A line may begin with conditions such as ``?relay`` or ``?!relay``: it is printed only if they all hold, or do not hold. A
placeholder such as ``{name}`` stands for a fact. A line that then begins with ``+ `` goes on with the line before it.
"""

import re
import tomllib
from functools import cache
from itertools import chain
from pathlib import Path

from ldpstream.surveys import Survey

Facts = dict[str, object]  # name of a condition or a placeholder -> its value
PLACEHOLDER = re.compile(r"\{(\w*)\}")
_CONDITIONS = re.compile(r"((?:\?!?\w+ ?)*)(.*)")


def facts_of(survey: Survey) -> Facts:
    """Returns the facts about a survey that several texts need."""
    several, kind, cohort, every = len(survey.attributes) > 1, survey.collection, survey.cohort, [*chain(*survey.mechanisms)]
    return {
        "name": survey.name, "fingerprint": survey.fingerprint.hex(), "pin": survey.pin, "relay": survey.relay,
        "several": several, "smp": several and kind == "smp", "spl": several and kind == "spl",
        "rsfd": several and kind == "rs+fd", "memoized": any(m.memoized for m in every),
        "fresh": any(not m.memoized for m in every), "choice": any(len(a.levels) > 1 for a in survey.attributes),
        "silent": any(a.catch_all is None and not a.nearest for a in survey.attributes),
        "cohort": cohort and cohort.name, "cohorts": cohort and ", ".join(cohort.values), "least": cohort and cohort.least,
    }  # fmt: skip


def split(line: str) -> tuple[list[str], str]:
    """Returns the conditions of a line, and its text."""
    found = _CONDITIONS.fullmatch(line)
    assert found is not None
    return found[1].split(), found[2]


def fill(text: str, facts: Facts) -> list[str]:
    lines = list[str]()
    for conditions, said in map(split, text.strip("\n").splitlines()):
        if all(bool(facts[one.lstrip("?!")]) is not one.startswith("?!") for one in conditions):
            filled = PLACEHOLDER.sub(lambda found: str(facts[found[1]]), said)
            if said.startswith("+ "):
                lines[-1] += filled[1:]
            else:
                lines += filled.split("\n")  # a fact may have several lines
    return lines


@cache
def _check() -> dict[str, str]:
    return tomllib.loads(Path(__file__).with_name("check.toml").read_text(encoding="utf-8"))


def of_check(name: str, facts: Facts) -> list[str]:
    """Returns the lines of a text of `check.toml`."""
    return fill(_check()[name], facts)
