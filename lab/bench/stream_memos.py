"""Compares the errors and privacy losses of memoized mechanisms and of the spaced level, for values that change often.

A memoized mechanism has ε∞ and ε₁ = ε∞/2. The spaced level sends one report with ε = ε∞ in each window.

Source of the data: LOLOHA (Arcolezi, Pinzón, Palamidessi and Gambs, EDBT 2023, arXiv:2210.00262).
"""

from collections.abc import Callable
from dataclasses import dataclass

import msgspec
import numpy as np

from lab.bench.stream_spaced import filtered
from ldpstream.estimators import matrix_inversion
from ldpstream.mechanisms import LONGITUDINAL, ONE_TIME, Longitudinal, Mechanism
from ldpstream.mechanisms.arguments import FloatArray, IntArray
from ldpstream.mechanisms.claims.guessing import Chance
from ldpstream.producers.memos import Memos

SPACED_MECHANISMS = ("OUE", "OLH")


@dataclass(frozen=True, slots=True)
class Setting:
    people: int
    k: int
    steps: int
    change: float
    window: int
    epsilons: tuple[float, ...]


FULL = Setting(10_000, 360, 120, 0.25, 24, (1.0, 2.0, 4.0))
QUICK = Setting(500, 20, 12, 0.25, 4, (2.0,))


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One mechanism, with mean squared errors (MSE_avg), privacy losses in nats, and chances of a right guess.

    Attributes:
        mechanism: the mechanism's name; a one-time mechanism stands for the spaced level.
        eps_inf: ε∞ of the memo, or the ε of every report of the spaced level.
        exact: false if `eps_sequence` is an upper bound.
        exact_guesses: false for each of the chances that is an upper bound.
    """

    mechanism: str
    eps_inf: float
    eps_1: float
    mse_step: float
    mse_window: float
    mse_filtered: float | None
    eps_sequence: float
    exact: bool
    guess_once: float
    guess_unchanged: float
    guess_any: float
    exact_guesses: tuple[bool, bool, bool]

    @property
    def guesses(self) -> list[Chance]:
        found = (self.guess_once, self.guess_unchanged, self.guess_any)
        return [Chance(guess, exact=exact) for guess, exact in zip(found, self.exact_guesses, strict=True)]


def evolving(s: Setting, rng: np.random.Generator) -> IntArray:
    values = np.empty((s.steps, s.people), np.int64)
    values[0] = rng.integers(0, s.k, s.people)
    for t in range(1, s.steps):
        values[t] = np.where(rng.random(s.people) < s.change, rng.integers(0, s.k, s.people), values[t - 1])
    return values


def memoized(m: Longitudinal, values: IntArray, rng: np.random.Generator) -> FloatArray:
    everybody = np.arange(values.shape[1])
    memos, enrolment = Memos(m), m.enroll(everybody.size, rng)
    shares = np.empty((len(values), m.k))
    for t, now in enumerate(values):

        def draw(new: IntArray, now: IntArray = now) -> np.ndarray:
            return m.memoize(now[new], rng, enrolment[new])

        reports = m.report(memos.recall(everybody, m.memo_keys(now, enrolment), draw), rng)
        shares[t] = matrix_inversion(m, m.tabulate(reports)).frequencies
    return shares


def spaced_reports(m: Mechanism, values: IntArray, w: int, rng: np.random.Generator) -> tuple[FloatArray, IntArray]:
    phase = rng.integers(0, w, values.shape[1])
    tables = [m.tabulate(m.simulate(now[phase == t % w], rng)) for t, now in enumerate(values)]
    return np.array([matrix_inversion(m, table).frequencies for table in tables]), np.array([table.n for table in tables])


def last_mean(shares: FloatArray, w: int) -> FloatArray:
    return np.array([shares[max(0, t - w + 1) : t + 1].mean(axis=0) for t in range(len(shares))])


def measure_memos(s: Setting, repeats: int, seed: int, seen: Callable[[str], None]) -> list[Row]:
    rows = []
    for eps in s.epsilons:
        for number, name in enumerate((*LONGITUDINAL, *SPACED_MECHANISMS)):
            rows.append(_row(s, name, eps, repeats, np.random.default_rng([seed, number, int(1000 * eps)])))
            seen(f"{name}, ε∞={eps:g}")
    return rows


def _row(s: Setting, name: str, eps: float, repeats: int, rng: np.random.Generator) -> Row:
    memo = name in LONGITUDINAL
    m = LONGITUDINAL[name](k=s.k, eps_inf=eps, eps_1=eps / 2) if memo else ONE_TIME[name](k=s.k, eps=eps).spaced(s.window)
    found = np.zeros(3)
    for _ in range(repeats):
        values = evolving(s, rng)
        truth = np.array([np.bincount(now, minlength=s.k) for now in values]) / s.people
        if isinstance(m, Longitudinal):
            step = smooth = memoized(m, values, rng)
        else:
            step, counts = spaced_reports(m, values, s.window, rng)
            smooth = filtered(step, counts, m.p, m.q)
        found += [np.mean((x - truth) ** 2) / repeats for x in (step, last_mean(step, s.window), smooth)]
    reports = m.reports_in(s.steps)
    loss, guesses = m.eps_sequence(reports), (m.guess(1), m.guess(reports), m.claims.guess_any_values(reports))
    return Row(
        mechanism=name,
        eps_inf=eps,
        eps_1=m.eps_1,
        mse_step=float(found[0]),
        mse_window=float(found[1]),
        mse_filtered=None if memo else float(found[2]),
        eps_sequence=loss.value,
        exact=loss.exact,
        guess_once=float(guesses[0]),
        guess_unchanged=float(guesses[1]),
        guess_any=float(guesses[2]),
        exact_guesses=(guesses[0].exact, guesses[1].exact, guesses[2].exact),
    )
