"""The chance of a right guess: the share of people whose value the best guesser gets right.

The guesser sees all reports y of one attribute of a device, and at first considers all k values equally likely. The best guess
has the mean success, over people and randomness,

    (1/k) Σ_y max_v P(y|v)  <=  e^ε / (e^ε + k-1),   where ε is the loss of these reports

If values may change, the guess is about the value at one step. The chance is then the largest over all choices of k sequences
of values, where the v-th sequence has value v at this step.

**Fresh reports, any values.** If every permutation of the values only permutes the outputs (GRR, unary encodings, subset
selection), constant sequences give the largest chance. Proof: fix all steps but one, and let a_v be the likelihood of their
outputs for sequence v. Let f(v) be the value of sequence v at the remaining step. If f is not a permutation, some permutation
gives the same or a larger Σ_y max_v a_v P(y|f(v)). By symmetry all permutations, including the identity, give the same sum.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Self

from ldpstream.mechanisms.arguments import FloatArray
from ldpstream.mechanisms.arrays import np, npt

MAX_EXACT_REPORTS = 100  # largest number of reports of symbols for which the exact chance is computed
MAX_EXACT_BITS = 10**5  # the same number for reports of bits
SAME = 1e-6  # chances with a smaller relative difference count as equal


class Chance(float):
    """A probability, either exact or an upper bound.

    >>> str(Chance(0.47537)), str(Chance(0.47537, exact=False))
    ('47.5 %', 'at most 47.6 %')
    """

    _exact: bool | Callable[[], bool]

    def __new__(cls, value: float, *, exact: bool | Callable[[], bool] = True) -> Self:
        """A function `exact` is called when somebody first asks."""
        chance = super().__new__(cls, min(value, 1.0))
        chance._exact = exact
        return chance

    @property
    def exact(self) -> bool:
        if not isinstance(self._exact, bool):
            self._exact = self._exact()
        return self._exact

    def __getnewargs_ex__(self) -> tuple[tuple[float], dict[str, bool]]:
        return (float(self),), {"exact": self.exact}  # to pickle, after the function's call

    def __str__(self) -> str:
        return percent(self) if self.exact else f"at most {percent_up(self)}"


def percent(chance: float) -> str:
    """Formats a probability in per cent: one decimal, below 10 % two significant digits, and never 100 % if it is below 1."""
    if 0.9995 <= chance < 1:
        return "> 99.9 %"
    return f"{100 * chance:.{_decimals(chance)}f} %"


def percent_up(bound: float) -> str:
    return f"{100 * round_up(bound):.{_decimals(bound)}f} %"


def round_up(bound: float) -> float:
    """Rounds an upper bound up to the digits of `percent`. An excess below 0.000005 of the last digit is ignored.

    >>> round_up(0.47537), round_up(0.01234)
    (0.476, 0.013)
    """
    scale = float(f"1e{2 + _decimals(bound)}")
    return min(math.ceil(round(bound * scale, 5)) / scale, 1.0)


def _decimals(chance: float) -> int:
    return 1 if chance >= 0.1 or chance <= 0 else max(1, 1 - math.floor(math.log10(100 * chance)))


def bound(eps: float, k: int) -> float:
    """Upper bound of the posterior probability of one of k equally likely values, if the loss is eps nats."""
    return 1 / (1 + (k - 1) * math.exp(-eps))


def of_memo(t: float, known: float, chance: Callable[[int], float], most: int) -> Chance:
    """Chance of a right guess from t reports of one memo.

    Args:
        t: number of reports, or `math.inf`.
        known: chance of a guesser who knows the memo: the limit for many reports.
        chance: function that returns the exact chance from a number of reports, up to `most`.

    Returns:
        The exact chance up to `most` reports; beyond, `known`, exact if the chance from `most` reports equals it (`SAME`), else
            an upper bound.
    """
    return Chance(chance(int(t))) if t <= most else Chance(known, exact=lambda: known - chance(most) < SAME * known)


@lru_cache(maxsize=64)
def log_factorials(t: int) -> FloatArray:
    """ln(n!) for n from 0 to t."""
    return np.array([math.lgamma(n + 1) for n in range(t + 1)])  # scipy.special.gammaln is slow to load


def binomial(t: int, p: float) -> FloatArray:
    n, factorials = np.arange(t + 1), log_factorials(t)
    with np.errstate(divide="ignore", invalid="ignore"):  # p may round to 1
        ones = np.where(n > 0, n * np.log(p), 0.0)
        zeros = np.where(n < t, (t - n) * np.log1p(-p), 0.0)
    return np.asarray(np.exp(factorials[t] - factorials - factorials[::-1] + ones + zeros))


def among_bits(k: int, one: npt.ArrayLike, zero: npt.ArrayLike) -> float:
    """Chance of a right guess among k values, if each value has independent evidence, such as a bit of a unary encoding.

    Args:
        k: number of values.
        one: Pr[evidence j of a value | it is the true value], in ascending order of the likelihood ratio one/zero.
        zero: Pr[evidence j of a value | it is not the true value].
    """
    hot, cold = np.asarray(one, np.float64), np.asarray(zero, np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        some = -np.expm1(k * np.log1p(-np.minimum(np.cumsum(cold[::-1])[::-1], 1.0)))  # Pr[any value has evidence j or more]
        best = (some - np.append(some[1:], 0.0)) * hot / cold
    return float(np.where(cold > 0, best, k * hot).sum() / k)


def among_memos(k: int, p: float, not_p: float, q: float, not_q: float) -> float:
    """`among_bits` for a single bit of each value, in plain Python."""
    log_none = k * math.log1p(-q)  # ln Pr[k bits of other values are zero]
    return (-math.expm1(log_none) * p / q + math.exp(log_none) * not_p / not_q) / k


@lru_cache(maxsize=1024)
def most_likely_symbol(t: int, n: int, g: int, p: float) -> float:
    """Σ_y max_m P(y|m) over n of g symbols m. Each of t reports is m with probability p, else another symbol, uniformly.

    This sum is n times the probability that m is the most frequent of the n symbols, with ties broken at random. If N reports
    are m, with a factor u for each tied symbol and ∫ u^i du = 1/(i+1) over [0, 1], the probability is

        (t-N)! [z^{t-N}] ∫ (Σ_{i<N} x^i/i! + u x^N/N!)^{n-1} e^{(g-n)x} du,   x = z/(g-1)
    """
    total = 0.0
    for reported, chance in enumerate(binomial(t, p)):
        rest = t - reported
        if reported > rest:  # no other symbol can be reported as often as m
            total += chance
            continue
        if reported == 0:  # all n symbols tie if every report is one of the other g - n symbols
            total += chance * ((g - n) / (g - 1)) ** rest / n
            continue
        powers = np.arange(rest + 1)
        factorials = np.exp(-log_factorials(rest) - powers * math.log(g - 1))
        free = np.exp(-log_factorials(rest)) * ((g - n) / (g - 1)) ** powers
        at, weights = np.polynomial.legendre.leggauss(rest // reported // 2 + 1)
        for u, weight in zip((at + 1) / 2, weights / 2):
            other = np.where(powers < reported, 1.0, np.where(powers == reported, u, 0.0)) * factorials
            ways = np.convolve(_power(other, n - 1), free)[rest]
            total += chance * weight * ways * math.exp(math.lgamma(rest + 1))
    return n * float(total)


def _power(polynomial: FloatArray, exponent: int) -> FloatArray:
    size = polynomial.size
    result: FloatArray = np.eye(1, size)[0]
    while exponent:
        if exponent & 1:
            result = np.convolve(result, polynomial)[:size]
        polynomial, exponent = np.convolve(polynomial, polynomial)[:size], exponent >> 1
    return result
