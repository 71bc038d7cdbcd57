"""The conformance check: tests whether a foreign device behaves like a device of the survey.

A correct device fails with probability at most `FALSE_ALARM`.

The verdict "passed" needs a sample that shows, with probability 0.9, a p that is too small by a quarter of p - q. For memoized
levels the sample must also be large enough to find a device that draws a fresh memo for every report, and must have reports of
two values of one device.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from devices.conformance.binomial import BinomialCounts, detectable, trials_needed
from devices.conformance.calls import Call, ConformanceError
from devices.conformance.choices import PHASE, SAMPLED, choice_counts
from devices.conformance.memos import TWO_VALUES, memo_counts
from devices.conformance.privacy import Bound, audit_rows
from devices.conformance.rows import FIRST_TWO, HELD, channel_counts
from devices.conformance.rules import Fault, check_rules
from devices.conformance.runs import TWO_RUNS, run_counts
from devices.conformance.sets import of_answers
from ldpstream.mechanisms.wording import plural
from ldpstream.surveys import Survey

FALSE_ALARM = 0.001


@dataclass(frozen=True, slots=True)
class Tested:
    """The result of one check: its test with the smallest p-value, and what this test can detect.

    Attributes:
        expected, observed: claimed probability and observed share of the test with the smallest p-value.
        detectable: the smallest difference from `expected` that this test detects with probability 0.9.
        needed: the number of trials for which this test detects its rival with probability 0.9; None without a rival.
        passed: false if the p-value shows a fault.
    """

    place: str
    check: str
    tests: int
    expected: float
    observed: float
    trials: int
    p_value: float
    detectable: float
    needed: int | None
    passed: bool

    def __str__(self) -> str:
        return (
            f"{self.place}: {self.check}: a share of {self.observed:.5f}, expected {self.expected:.5f}"
            f" (n = {self.trials}, p-value {self.p_value:.1e})"
        )


@dataclass(frozen=True, slots=True)
class Conformance:
    """Results of a check.

    Attributes:
        false_alarm: upper bound on the probability that a correct device fails.
    """

    calls: int
    devices: int
    reports: int
    faults: list[Fault]
    tested: list[Tested]
    bounds: list[Bound]
    false_alarm: float
    check_alpha: float

    @property
    def failures(self) -> list[str]:
        exceeded = [
            f"{b.place}: at least {b.bound:.3f} nats from {plural(b.t, 'report')} of an unchanged value, "
            f"claimed {b.claimed:.3f}"
            for b in self.bounds
            if not b.kept
        ]
        return [*map(str, self.faults), *(str(tested) for tested in self.tested if not tested.passed), *exceeded]

    @property
    def passed(self) -> bool:
        return not self.failures


def check_device(survey: Survey, calls: Iterable[Call]) -> Conformance:
    """Checks the calls of a foreign device.

    Raises:
        ConformanceError: if there are no calls, or too few for a verdict and no fault is visible.
    """
    observed = check_rules(survey, calls)
    if not observed.calls:
        raise ConformanceError("there are no calls")
    groups, bounds = [*choice_counts(survey, observed), *run_counts(survey, observed)], []
    for (a, level), rows in sorted(observed.rows.items()):
        place = f"{survey.attributes[a].name}, {survey.attributes[a].levels[level].name}"
        m = survey.mechanisms[a][level]
        groups += [*channel_counts(place, m, rows), *memo_counts(place, m, rows)]
        bounds += audit_rows(place, m, rows, FALSE_ALARM / 2 / sum(map(len, survey.mechanisms)))
    groups = [group for group in groups if group.trials.size]
    alpha = FALSE_ALARM / 2 / max(len(groups), 1)
    tested = [_tested(group, alpha / group.trials.size) for group in groups]
    devices = np.unique(np.concatenate([rows.devices for rows in observed.rows.values()])).size if observed.rows else 0
    n_reports = sum(rows.values.size for rows in observed.rows.values())
    found = Conformance(observed.calls, devices, n_reports, observed.faults, tested, bounds, FALSE_ALARM, alpha)
    if found.passed:
        _require_enough(survey, found)
    return found


def _tested(group: BinomialCounts, alpha: float) -> Tested:
    p_values = group.p_values
    worst = int(np.argmin(p_values))
    n, expected = int(group.trials[worst]), float(group.probabilities[worst])
    needed = None if group.rival is None else trials_needed(abs(expected - float(group.rival[worst])), expected, alpha)
    return Tested(
        group.place, group.check, p_values.size, expected, float(group.successes[worst] / n), n, float(p_values[worst]),
        detectable(n, expected, alpha), needed, bool(p_values[worst] >= alpha),
    )  # fmt: skip


def _require_enough(survey: Survey, found: Conformance) -> None:
    for attribute, mechanisms in zip(survey.attributes, survey.mechanisms, strict=True):
        for level, m in zip(attribute.levels, mechanisms, strict=True):
            place = f"{attribute.name}, {level.name}"
            _require(found, place, HELD, "independent reports")
            for size in () if m.choices is None else {0, 1, m.choices}:
                _require(found, place, of_answers(size), f"independent reports of sets with {plural(size, 'answer')}")
            if m.memoized:
                _require(found, place, FIRST_TWO, "repeated reports of one value by one device")
            if m.memoized and m.fakes == 1 and not _tested_at(found, place, TWO_VALUES):
                raise ConformanceError(f"no fault found, but no device reported two values of {place}")
            if m.every_steps > 1 and not _tested_at(found, place, PHASE):
                raise ConformanceError(f"no fault found, but no device was asked for {place} at every phase")
    if survey.collection == "smp" and len(survey.attributes) > 1 and not any(one.check == SAMPLED for one in found.tested):
        raise ConformanceError("no fault found, but no device was asked for every attribute at every phase")
    _require(found, "", TWO_RUNS, "devices with two runs")


def _tested_at(found: Conformance, place: str, check: str) -> bool:
    return any(one.place == place and one.check.startswith(check) for one in found.tested)


def _require(found: Conformance, place: str, check: str, what: str) -> None:
    tests = [one for one in found.tested if place in ("", one.place) and one.check.startswith(check)]
    having = [(one.trials, one.needed) for one in tests if one.needed]
    if not any(trials >= needed for trials, needed in having):
        trials, needed = min(having, key=lambda one: one[1] / one[0], default=(0, 0))
        known = f": {trials:,}, needs about {needed:,}" if having else ""
        raise ConformanceError(f"no fault found, but too few {what}{f' of {place}' if place else ''} for a verdict{known}")
