"""Measures lower bounds of the privacy loss from reports that the code emits, and compares them with the claims.

An attack distinguishes two values by an event: the score of a report (`ratios`) is at least c. On one half of the
reports, the audit chooses the event with the largest bound. On the other half, the audit counts this event among the reports of
each of the two values a and b:

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
from ldpstream.mechanisms.arguments import FloatArray, IntArray
from ldpstream.mechanisms.registry import one_time, registered

CHOICES = 3  # answers of a person, for mechanisms of sets
K = 9  # nine bits need two bytes; the second byte has padding
EPS = (0.5, 1.0, 2.0, 4.0)
HORIZONS = (1, 2, 3, 10)
T = 3  # number of audited reports of an unchanged value
JOINT_ALPHA = 0.001
CONTROLS_PLACE = (0, 1000)  # random streams of the controls, distinct from every mechanism's streams
CONTROL_REPORTS = 20_000  # devices with each value; enough to catch every control
Supports = npt.NDArray[np.uint8]  # (n, k)
SupportsOfValues = dict[int, Supports]  # for each value that devices hold: (devices, k) numbers of supporting reports


@dataclass(frozen=True, slots=True)
class Audited:
    """One mechanism's claims, with the results of enumeration and of the attacks.

    Attributes:
        eps_1, eps_inf: claimed losses; eps_inf is None for a one-time mechanism.
        enumerated_eps_1, enumerated_eps_inf: losses of a report and of the memo, by enumeration.
        eps_t, enumerated_eps_t: losses of t reports, claimed and enumerated, for t in `HORIZONS`.
    """

    mechanism: str
    eps_1: float
    enumerated_eps_1: float
    eps_inf: float | None
    enumerated_eps_inf: float | None
    eps_t: tuple[float, ...]
    enumerated_eps_t: tuple[float, ...]
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


def attack(counts: SupportsOfValues, ratios: FloatArray, alpha: float) -> tuple[float, tuple[int, int], int, int]:
    """Chooses the best attack on the first half of the reports, and bounds the loss with this attack on the second half.

    Args:
        counts: support counts by value.
        ratios: (t+1, t+1) from `Claims.ratios`.

    Returns:
        bound in nats, the pair of values, hits and false hits of the event in the second half.
    """
    side, half = len(ratios), min(map(len, counts.values())) // 2
    order = np.argsort(-ratios, axis=None, kind="stable")

    def cumulated(rows: Supports, a: int, b: int) -> IntArray:
        cells = rows[:, a].astype(np.intp) * side + rows[:, b]
        return np.cumsum(np.bincount(cells, minlength=side * side)[order])

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
    for value in path.values if m.choices is None else range(len(m.claims.audited())):
        observed = path.sample(m, value, path.n, T if m.memoized else 1, rng)
        firsts[value] = supports(m, observed.reports[0])
        totals[value] = _total_supports(m, observed)
        if observed.memos is not None:
            memos[value] = supports(m, observed.memos)
    found = [Finding(path.name, "eps_1", 1, m.eps_1, *attack(firsts, m.claims.ratios().table(1), alpha), path.n)]
    if (memo_ratios := m.claims.memo_ratios()) is not None:
        at_t = attack(totals, m.claims.ratios().table(T), alpha)
        of_memo = attack(memos, memo_ratios.table(1), alpha)
        found.append(Finding(path.name, "eps_t", T, m.eps_t(T), *at_t, path.n))
        found.append(Finding(path.name, "eps_inf", 0, m.eps_inf, *of_memo, path.n))
    return found


def supports(m: Mechanism, reports: Reports) -> Supports:
    """(n, inputs), 1 where a report supports an input of `Mechanism.audited`."""
    return np.stack([m.claims.supports(reports, np.full(len(reports), held)) for held in m.claims.audited()], axis=1).astype(
        np.uint8
    )


def channel_loss(m: Mechanism) -> float:
    logs = np.log(m.channel())
    return float((logs.max(axis=0) - logs.min(axis=0)).max())


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
        counts = {value: _total_supports(m, sample(m, value, n, t, rng)) for value in range(len(m.claims.audited()))}
        result = attack(counts, m.claims.ratios().table(t), alpha)
        found.append(Control(fault, m.signature, Finding("broken", "eps_1" if t == 1 else "eps_inf", t, claimed, *result, n)))

    for name in registered():
        m = audited_mechanism(name, 1.0)
        if m.claims.independent_bits:
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
        rows.append(_row(m, found))
    progress("spaced level")
    spaced = spaced_findings(devices, alpha)
    progress("controls")
    caught = controls(CONTROL_REPORTS, seed, alpha)
    caught += spaced_controls(CONTROL_REPORTS, np.random.default_rng([seed, *CONTROLS_PLACE, len(caught)]), alpha)
    return Report(seed, K, 1 - JOINT_ALPHA, n_bounds, rows, caught, spaced)


def _row(m: Mechanism, found: list[Finding]) -> Audited:
    ratios, memo_ratios = m.claims.ratios(), m.claims.memo_ratios()
    return Audited(
        m.signature,
        m.eps_1,
        channel_loss(m),
        m.eps_inf if m.memoized else None,
        None if memo_ratios is None else memo_ratios.loss(1),
        tuple(m.eps_t(t) for t in HORIZONS),
        tuple(ratios.loss(t) for t in HORIZONS),
        found,
    )
