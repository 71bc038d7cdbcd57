"""The choices that a device makes once, and its keys, compared with their distributions."""

from collections.abc import Iterable
from itertools import combinations, pairwise
from typing import TypeVar

import numpy as np

from devices.conformance.binomial import VALUE_GROUPS, BinomialCounts, by_probability, counts, uniform, uniform_given
from devices.conformance.rows import pairs
from devices.conformance.rules import CheckedCalls, Rows
from lab.audit.events import events
from ldpstream.mechanisms import Mechanism
from ldpstream.mechanisms.arguments import FloatArray, IntArray
from ldpstream.surveys import Attribute, Survey

SAMPLED, PHASE, TOGETHER = "sampled attribute", "phase", "two attributes"
MOST_TOGETHER = 30  # levels of all attributes; with more, only neighbouring levels are compared

Entry = TypeVar("Entry")


def choice_counts(survey: Survey, observed: CheckedCalls) -> list[BinomialCounts]:
    """Compares the sampled attributes, phases, dependence between attributes, and the bits of keys with the claim."""
    return [
        *_sampled(survey, observed),
        *_phases(survey, observed),
        *_attributes_together(survey, observed.rows),
        *_keys(survey, observed),
    ]


def _sampled(survey: Survey, observed: CheckedCalls) -> list[BinomialCounts]:
    devices, sampled = observed.sampled.T
    d = len(survey.attributes)
    found = [uniform("all devices", SAMPLED, sampled, d)]
    for a, attribute in enumerate(survey.attributes):
        found.append(uniform_given(attribute.name, SAMPLED, sampled, d, *_grouped(attribute, observed.values[devices, a])))
    return found


def _keys(survey: Survey, observed: CheckedCalls) -> list[BinomialCounts]:
    bits = np.unpackbits(observed.keys, axis=1)
    devices, attributes, values = observed.key_calls.T
    first, second = pairs(devices)
    equal = (bits[first] == bits[second]).sum(axis=0)
    found = [
        counts("all envelopes", "bits of keys, for each bit", bits.sum(axis=0), len(bits), 0.5),
        counts("all envelopes", "equal bits of a device's first two keys, for each bit", equal, first.size, 0.5),
    ]
    for a, attribute in enumerate(survey.attributes):
        mine = attributes == a
        grouped, k = _grouped(attribute, values[mine])
        groups = min(k, VALUE_GROUPS)
        group = grouped * groups // k
        seen = np.array([bits[mine][group == g].sum(axis=0, dtype=np.int64) for g in range(groups)])
        number = np.bincount(group, minlength=groups)[:, None]
        found.append(counts(attribute.name, "bits of keys, for each bit and value", seen, number, 0.5))
    return found


def _phases(survey: Survey, observed: CheckedCalls) -> list[BinomialCounts]:
    found = []
    for (a, level), phases in observed.phases.items():
        place = f"{survey.attributes[a].name}, {survey.attributes[a].levels[level].name}"
        w, values = survey.mechanisms[a][level].every_steps, _grouped(survey.attributes[a], observed.values[phases[:, 0], a])
        found += [uniform(place, PHASE, phases[:, 1], w)]
        found += [uniform_given(place, PHASE, phases[:, 1], w, *values)]
    for (first, one), (second, two) in _twos(sorted(observed.phases.items())):
        w = survey.mechanisms[first[0]][first[1]].every_steps
        if first[0] == second[0] or w != survey.mechanisms[second[0]][second[1]].every_steps:
            continue
        left, right = joined(one[:, 0], two[:, 0])
        check = f"{_named(survey, *first)} and {_named(survey, *second)}: equal phases"
        found.append(counts(TOGETHER, check, (one[left, 1] == two[right, 1]).sum(), left.size, 1 / w))
    return found


def _attributes_together(survey: Survey, rows: dict[tuple[int, int], Rows]) -> list[BinomialCounts]:
    if survey.collection == "smp":
        return []
    found = []
    firsts = {key: np.unique(reports.devices, return_index=True)[1] for key, reports in rows.items()}  # one row a device
    for (first, one), (second, two) in _twos(sorted(rows.items())):
        m1, m2 = survey.mechanisms[first[0]][first[1]], survey.mechanisms[second[0]][second[1]]
        if first[0] == second[0]:
            continue
        i, j = firsts[first], firsts[second]
        left, right = joined(one.devices[i], two.devices[j])
        i, j = i[left], j[right]
        both = events(m1).supports(one.rows[i], one.values[i]) & events(m2).supports(two.rows[j], two.values[j])
        d = m1.fakes
        (own1, fake1), (own2, fake2) = (_own_and_fake(m.device, held) for m, held in ((m1, one.values[i]), (m2, two.values[j])))
        expected = (own1 * fake2 + fake1 * own2 + (d - 2) * fake1 * fake2) / d if d > 1 else own1 * own2
        check = f"{_named(survey, *first)} and {_named(survey, *second)}: both attributes support the device's values"
        found.append(by_probability(TOGETHER, check, both, expected))
    return found


def _twos(levels: list[Entry]) -> Iterable[tuple[Entry, Entry]]:
    return combinations(levels, 2) if len(levels) <= MOST_TOGETHER else pairwise(levels)


def _named(survey: Survey, attribute: int, level: int) -> str:
    asked = survey.attributes[attribute]
    return asked.name if len(asked.levels) == 1 else f"{asked.name}, {asked.levels[level].name}"


def _grouped(attribute: Attribute, values: IntArray) -> tuple[IntArray, int]:
    if attribute.most is None:
        return values, attribute.k
    return np.bitwise_count(values).astype(np.int64), attribute.most + 1


def _own_and_fake(m: Mechanism, values: IntArray) -> tuple[FloatArray, FloatArray]:
    own = events(m).own_chances(values)
    return own, own if m.choices is not None else events(m).support_chances()[1][values]  # sets have no fake data


def joined(left: IntArray, right: IntArray) -> tuple[IntArray, IntArray]:
    return np.intersect1d(left, right, assume_unique=True, return_indices=True)[1:]
