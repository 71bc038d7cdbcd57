"""Measures lower bounds of the privacy loss from reports that the code emits, and compares them with the claims.

An attack distinguishes two values a and b by an event: the number of a device's reports that support a, minus the number of
those that support b, is at least c. For one report of every mechanism, and for one memo, this order is that of the likelihood
ratios. On one half of the reports, the audit chooses the event with the largest bound. On the other half, the audit counts this
event among the reports of each of the two values:

    ε ≥ ln(lower bound of Pr[event | a] / upper bound of Pr[event | b])

with Clopper-Pearson bounds. If every claim holds, then with probability at least 0.999 no bound of the run exceeds the claimed
loss. The audit covers ε₁, for memoized mechanisms also ε_t and ε∞, and the losses of a spaced level.

The audit covers neither the ways of collecting several attributes nor the mechanisms for locations. Mechanisms broken on
purpose (`controls`) show that the audit finds faults.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from inspect import signature
from itertools import permutations
from typing import Any

import numpy as np
import numpy.typing as npt

from lab.audit.clopper_pearson import loss_bound
from lab.audit.events import events
from lab.audit.finding import Control, Finding, Loss
from lab.audit.samplers import (
    CodePath,
    SampledReports,
    Sampler,
    fresh_memos,
    last_bit_in_clear,
    one_member,
    reports_of,
)
from lab.audit.spaced import CLAIMS, spaced_controls, spaced_findings
from ldpstream.mechanisms import SETS, Mechanism, Reports, mechanism
from ldpstream.mechanisms.arguments import IntArray
from ldpstream.mechanisms.registry import one_time, registered

CHOICES = 3  # answers of a person, for mechanisms of sets
K = 9  # nine bits need two bytes; the second byte has padding
EPS = (0.5, 1.0, 2.0, 4.0)
T = 3  # number of audited reports of an unchanged value
JOINT_ALPHA = 0.001
CONTROLS_PLACE = (0, 1000)  # random streams of the controls, distinct from every mechanism's streams
CONTROL_REPORTS = 20_000  # devices with each value; enough to catch every control
Supports = npt.NDArray[np.uint8]  # (n, k)
SupportsOfValues = dict[int, Supports]  # for each value that devices hold: (devices, k) numbers of supporting reports


@dataclass(frozen=True, slots=True)
class Audited:
    """One mechanism's results.

    Attributes:
        memoized: True if the losses of a memo and of several reports are audited, too.
    """

    mechanism: str
    memoized: bool
    findings: list[Finding]


@dataclass(frozen=True, slots=True)
class Report:
    """Results of a whole run.

    Attributes:
        seed: seed of the vectorised reports and of the controls; devices use the operating system's randomness.
        joint_confidence: lower bound on the probability that no bound exceeds a claim, if every claim holds.
    """

    seed: int
    k: int
    joint_confidence: float
    n_bounds: int
    rows: list[Audited]
    controls: list[Control]
    spaced: list[Finding]

    @property
    def passed(self) -> bool:
        return all(f.kept for f in self.findings) and all(c.caught for c in self.controls)

    @property
    def findings(self) -> list[Finding]:
        return [f for row in self.rows for f in row.findings] + self.spaced


def audited_mechanism(name: str, eps: float, **options: Any) -> Mechanism:
    if name in SETS:
        options["choices"] = CHOICES
    if one_time(name):
        return mechanism(name, K, eps=eps, **options)
    return mechanism(name, K, eps_inf=2 * eps, eps_1=eps, **options)


def attack(counts: SupportsOfValues, t: int, alpha: float) -> tuple[float, tuple[int, int], int, int]:
    """Chooses the best attack on the first half of the reports, and bounds the loss with this attack on the second half.

    Args:
        counts: support counts by value.
        t: number of reports of a device.

    Returns:
        bound in nats, the pair of values, hits and false hits of the event in the second half.
    """
    half = min(map(len, counts.values())) // 2

    def cumulated(rows: Supports, a: int, b: int) -> IntArray:
        below = t + rows[:, b].astype(np.intp) - rows[:, a]
        return np.cumsum(np.bincount(below, minlength=2 * t + 1))

    best, a, b, event = -1.0, 0, 1, 0
    for x, y in permutations(counts, 2):
        bounds = loss_bound(cumulated(counts[x][:half], x, y), cumulated(counts[y][:half], x, y), half, alpha)
        if bounds.max() > best:
            best, a, b, event = float(bounds.max()), x, y, int(bounds.argmax())
    hits, false_hits = (int(cumulated(counts[v][half : 2 * half], a, b)[event]) for v in (a, b))
    return float(loss_bound(hits, false_hits, half, alpha)), (a, b), hits, false_hits


def losses(m: Mechanism) -> tuple[Loss, ...]:
    return ("eps_1", "eps_t", "eps_inf") if m.memoized else ("eps_1",)


def findings(m: Mechanism, path: CodePath, rng: np.random.Generator, alpha: float) -> list[Finding]:
    """Audits every loss of a mechanism on one code path, each bound with error probability alpha."""
    firsts: SupportsOfValues = {}
    totals: SupportsOfValues = {}
    memos: SupportsOfValues = {}
    for value in path.values if m.choices is None else range(len(events(m).audited())):
        observed = path.sample(m, value, path.n, T if m.memoized else 1, rng)
        firsts[value] = supports(m, observed.reports[0])
        totals[value] = _total_supports(m, observed)
        if observed.memos is not None:
            memos[value] = supports(m, observed.memos)
    found = [Finding(path.name, "eps_1", 1, m.eps_1, *attack(firsts, 1, alpha), path.n)]
    if m.memoized:
        found.append(Finding(path.name, "eps_t", T, m.eps_t(T), *attack(totals, T, alpha), path.n))
        found.append(Finding(path.name, "eps_inf", 0, m.eps_inf, *attack(memos, 1, alpha), path.n))
    return found


def supports(m: Mechanism, reports: Reports) -> Supports:
    """(n, inputs), 1 where a report supports an input of `Events.audited`."""
    return np.stack([events(m).supports(reports, np.full(len(reports), held)) for held in events(m).audited()], axis=1).astype(
        np.uint8
    )


def _total_supports(m: Mechanism, observed: SampledReports) -> Supports:
    total = supports(m, observed.reports[0])
    for reports in observed.reports[1:]:
        total += supports(m, reports)
    return total


def controls(n: int, seed: int, alpha: float) -> list[Control]:
    """Audits mechanisms broken on purpose, each for the loss that the fault increases, from n devices with each value."""
    found: list[Control] = []

    def add(fault: str, m: Mechanism, sample: Sampler, t: int, claimed: float) -> None:
        rng = np.random.default_rng([seed, *CONTROLS_PLACE, len(found)])
        counts = {value: _total_supports(m, sample(m, value, n, t, rng)) for value in range(len(events(m).audited()))}
        result = attack(counts, t, alpha)
        found.append(Control(fault, m.signature, Finding("broken", "eps_1" if t == 1 else "eps_inf", t, claimed, *result, n)))

    for name in registered():
        m = audited_mechanism(name, 1.0)
        if events(m).independent_bits:
            add("last bit never randomized", m, last_bit_in_clear, 1, m.eps_1)
        if m.choices is None:
            add("p and q of 1.5 ε", m, reports_of(_louder(m)), 1, m.eps_1)
        if m.memoized:
            add("memo drawn again for each of 10 reports", m, fresh_memos, 10, m.eps_inf)
    for name in SETS:
        m = audited_mechanism(name, 1.0)
        add("the last dummy tells that there are no values", m, one_member(0), 1, m.eps_1)
        add("always the second of two values", m, one_member(2), 1, m.eps_1)
    return found


def _louder(m: Mechanism) -> Mechanism:
    """The mechanism with 1.5 ε, and with the same parameters of its own, such as g."""
    own = signature(type(m)).parameters.keys() - {"name", "k", *m.epsilons()}
    return audited_mechanism(m.name, 1.5, **{key: getattr(m, key) for key in own if hasattr(m, key)})


def audit(names: Iterable[str], paths: Sequence[CodePath], seed: int, progress: Callable[[str], None], devices: int) -> Report:
    """Audits mechanisms at every ε of `EPS`, and a spaced level.

    Args:
        paths: code paths to audit.
        devices: number of devices of each sequence at the spaced level.
    """
    audited = [(audited_mechanism(name, eps), registered().index(name), i) for name in names for i, eps in enumerate(EPS)]
    n_bounds = len(paths) * sum(len(losses(m)) for m, _, _ in audited) + len(CLAIMS)
    alpha = JOINT_ALPHA / n_bounds
    rows = []
    for m, *place in audited:
        progress(m.signature)
        found: list[Finding] = []
        for i, path in enumerate(paths):
            found += findings(m, path, np.random.default_rng([seed, i, *place]), alpha)
        rows.append(Audited(m.signature, m.memoized, found))
    progress("spaced level")
    spaced = spaced_findings(devices, alpha)
    progress("controls")
    caught = controls(CONTROL_REPORTS, seed, alpha)
    caught += spaced_controls(CONTROL_REPORTS, np.random.default_rng([seed, *CONTROLS_PLACE, len(caught)]), alpha)
    return Report(seed, K, 1 - JOINT_ALPHA, n_bounds, rows, caught, spaced)
