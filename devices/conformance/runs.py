"""Two runs of one device: the same identity and values, but fresh stores. Choices and reports of the two runs must be
independent.

A device that derives coins from its identity repeats them in the second run.
"""

import numpy as np

from devices.conformance.binomial import BinomialCounts, by_probability, counts
from devices.conformance.choices import joined
from devices.conformance.rows import one_of_each, own_chances, take
from devices.conformance.rules import CheckedCalls
from lab.audit.events import events
from ldpstream.mechanisms.arguments import IntArray
from ldpstream.surveys import Survey

TWO_RUNS = "two runs of one device: both first reports support the value"


def run_counts(survey: Survey, observed: CheckedCalls) -> list[BinomialCounts]:
    d = len(survey.attributes)
    found = [_equal("all devices", "two runs with one sampled attribute", observed.sampled, d, observed.twins)]
    for (a, level), phases in observed.phases.items():
        place = f"{survey.attributes[a].name}, {survey.attributes[a].levels[level].name}"
        w = survey.mechanisms[a][level].every_steps
        found.append(_equal(place, "two runs with one phase", phases, w, observed.twins))
    for (a, level), reports in sorted(observed.rows.items()):
        place = f"{survey.attributes[a].name}, {survey.attributes[a].levels[level].name}"
        m, first = survey.mechanisms[a][level], one_of_each(reports)
        if m.n_enrolments > 1 and (hashed := events(m).functions(first.rows)) is not None:
            chosen = np.column_stack([first.devices, hashed[0]])
            found.append(_equal(place, "two runs with one hash function", chosen, hashed[1], observed.twins))
        left, right = _twins(first.devices, observed.twins)
        same = first.values[left] == first.values[right]
        one, two = take(first, left[same]), take(first, right[same])
        both = events(m).supports(one.rows, one.values) & events(m).supports(two.rows, two.values)
        chance = own_chances(m, one.values)
        found.append(by_probability(place, TWO_RUNS, both, chance**2, chance))
    return found


def _equal(place: str, check: str, chosen: IntArray, n: int, twins: IntArray) -> BinomialCounts:
    left, right = _twins(chosen[:, 0], twins)
    return counts(place, check, (chosen[left, 1] == chosen[right, 1]).sum(), left.size if n > 1 else 0, 1 / n)


def _twins(devices: IntArray, twins: IntArray) -> tuple[IntArray, IntArray]:
    left, i = joined(devices, twins[:, 0])
    right, j = joined(devices, twins[:, 1])
    _, one, two = np.intersect1d(i, j, assume_unique=True, return_indices=True)
    return left[one], right[two]
