"""L-SS: memoized subset selection with two set sizes.

    memo     a set M of m of the k values, by subset selection with ε∞
    report   a set Y of w values, P(Y|M) ∝ θ^|M∩Y|

`mechanisms.ledger.subset` proves that one report is subset selection with ε₁ and size w. So the two sizes minimise two
variances: V₁ of one report, and V∞ of infinitely many reports of an unchanged value, which is that of subset selection with ε∞
and size m. The mean of T reports has the variance V∞ + (V₁ - V∞)/T. m is also a privacy parameter: a guesser with all reports
is right with the chance e^{ε∞} / (m e^{ε∞} + k - m). With m = w = 1 the mechanism is L-GRR.

We know of no publication of this mechanism. Sources of subset selection: Ye and Barg 2018; Wang et al. 2016.
"""

from __future__ import annotations

import math
from itertools import accumulate
from typing import Any

from ldpstream.mechanisms import ledger
from ldpstream.mechanisms.arguments import MAX_COUNT, FloatArray, IntArray, Reports, chain_epsilons, integer, user_values
from ldpstream.mechanisms.arrays import np, npt
from ldpstream.mechanisms.claims import guessing
from ldpstream.mechanisms.claims.evidence import Evidence, loss_of
from ldpstream.mechanisms.claims.guessing import Chance
from ldpstream.mechanisms.counts.reading import Reading
from ldpstream.mechanisms.devices import Coins, DeviceRandom, Odds, Parameters, Randomizer, bits_row, row_bits
from ldpstream.mechanisms.families.subset import (
    RandomSubset,
    Subsets,
    SubsetsClaims,
    best_omega,
    draw_places,
    draw_subset,
    has_ones,
)
from ldpstream.mechanisms.kernels.bits import changed_rows
from ldpstream.mechanisms.kinds import Longitudinal, LongitudinalClaims
from ldpstream.mechanisms.ledger.subset import SubsetRounds, largest_eps_1

MOST_LOG_ODDS = 709  # nats; the odds are a double in the checks of a device
MOST_BITS = 2**16  # of the integers of a device, which have about 53 bits for each value of a set


def weights(k: int, m: int, w: int, odds: Odds) -> list[int]:
    """W_j = C(m,j) C(k-m,w-j) n^j 2^{s(J-j)} for j = 0 … J = min(m, w), with θ = n / 2^s: the exact chances of an overlap j."""
    number, top = int(odds.numerator, 16), min(m, w)
    return [math.comb(m, j) * math.comb(k - m, w - j) * number**j << odds.shift * (top - j) for j in range(top + 1)]


class MemoizedSubsetRandomizer(Randomizer):
    """The device's code of L-SS: a memo and a report are sets, as bits."""

    def __init__(self, parameters: Parameters) -> None:
        super().__init__(parameters)
        assert parameters.omega is not None
        assert parameters.memo_size is not None
        assert parameters.odds is not None
        self._omega, self._memo_size = parameters.omega, parameters.memo_size
        self._sums = list(accumulate(weights(self.k, self._memo_size, self._omega, parameters.odds)))

    def memoize(self, key: int, function: int, random: DeviceRandom) -> bytes:
        return bits_row(draw_subset(key, self.k, self._memo_size, self._first["with_value"], random))

    def is_memo(self, memo: bytes, function: int) -> bool:
        bits = int.from_bytes(memo, "little")
        return len(memo) == self.parameters.row_bytes and bits < 1 << self.k and bits.bit_count() == self._memo_size

    def report(self, memo: bytes, random: DeviceRandom) -> bytes:
        inside = row_bits(self.k, memo)
        drawn = random.below(self._sums[-1])
        overlap = next(j for j, total in enumerate(self._sums) if drawn < total)
        out = bytearray(self.k)
        for of_memo, size in ((1, overlap), (0, self._omega - overlap)):
            values = [value for value, bit in enumerate(inside) if bit == of_memo]
            for place in draw_places(len(values), size, random):
                out[values[place]] = 1
        return bits_row(out)


def best_sizes(
    k: int, eps_inf: float, eps_1: float, memo_size: int | None, omega: int | None, steps: int, least: int
) -> tuple[int, int]:
    """The set sizes m and w that minimise V∞ and V₁, or those that are given.

    If these sizes cannot reach eps_1, those that can with the least variance of the mean of `steps` reports, then the least V∞.
    If no sizes can, the optima.

    Args:
        least: the smallest m, unless `memo_size` is given; at most k/2 counts.
    """
    least = min(least, k // 2)
    m = min(max(best_omega(k, eps_inf), least), k // 2) if memo_size is None else memo_size
    w = min(best_omega(k, eps_1), k // 2) if omega is None else omega
    if eps_1 < largest_eps_1(k, m, w, eps_inf):
        return m, w
    ms = [memo_size] if memo_size else list(range(least, k // 2 + 1))
    ws = [omega] if omega else list(range(1, k // 2 + 1))
    reach = [(a, b) for a in ms for b in ws if eps_1 < largest_eps_1(k, a, b, eps_inf)]
    memo_noise = {a: RandomSubset(k, a, eps_inf).variance for a in ms}
    noise = {b: RandomSubset(k, b, eps_1).variance for b in ws}

    def cost(sizes: tuple[int, int]) -> tuple[float, float]:
        last, first = memo_noise[sizes[0]], noise[sizes[1]]
        return last + (first - last) / steps, last

    return min(reach, key=cost, default=(m, w))


def least_memo_size(k: int, eps_inf: float, guess: float) -> int:
    """The smallest m, at least 1, for which a guess from all reports is right with at most this chance; it may exceed k/2."""
    rest = math.exp(-eps_inf)
    return max(1, math.ceil((1 / guess - k * rest) / (1 - rest) * (1 - 1e-12)))


class MemoizedSubsetReading(Reading):
    m: LongitudinalSubset

    def _covariance_factors(self, frequencies: FloatArray, steps: int) -> list[tuple[int, FloatArray]]:
        """Within a step the covariance of a report's members; between steps (p₂-q₂)² times that of a memo's members."""
        within = self.m.drawn.covariance_rows(math.sqrt(steps), frequencies)
        between = self.m.memo.covariance_rows(math.sqrt(steps * (steps - 1)) * (self.m.p2 - self.m.q2), frequencies)
        return [(-1, row) for row in (*within, *between)]


class LongitudinalSubsetClaims(SubsetsClaims, LongitudinalClaims):
    m: LongitudinalSubset

    @property
    def memo_blanket(self) -> ledger.Blanket:
        return self.m.memo.blanket

    @property
    def eps_per_report(self) -> float:
        return min(self.m.memo_size, self.m.omega) * self.m.set_rounds.log_theta  # between a disjoint memo and the closest one

    def _swapped(self, t: float) -> Evidence:
        """The evidence of t reports between two memos that differ in one member."""
        k, m, w, j = self.m.k, self.m.memo_size, self.m.omega, np.arange(self.m.set_rounds.overlaps.size)
        favours = float(self.m.set_rounds.overlaps @ (j * (k - m - w + j))) / (m * (k - m))
        return Evidence(self.m.set_rounds.log_theta, favours, t)

    def distance(self, t: float) -> float:
        return self.m.memo.favours * -math.expm1(-self.m.eps_inf) * self._swapped(t).distance

    def eps_t(self, t: int) -> float:
        return ledger.eps_t_subset(integer("t", t, 1, MAX_COUNT), self.m.set_rounds)

    def _eps_sequence(self, t: int) -> ledger.SequenceLoss:
        return ledger.eps_sequence_subset(t, self.m.set_rounds)

    def _guess(self, t: float) -> Chance:
        """The best guess names a member of the memo. If this succeeds with probability s, as for a uniform memo, the guess is
        right with probability (1 + (e^ε∞ - 1) s) / (k + (e^ε∞ - 1) m).

        s is at least 1 - (k-m) ρ^t with ρ = 1 - (√h - √(h/θ))². ρ^t is Chernoff's bound of the chance that another value is in
        as many reports as a given member. h is the chance that only the member is in a report, h/θ that only the other is.
        """
        k, m = self.m.k, self.m.memo_size
        if t == 1:
            return Chance(self.m.p / self.m.omega)
        if t == math.inf:
            return Chance(self.m.p1 / m)
        swapped, rest = self._swapped(t), math.exp(-self.m.eps_inf)
        apart = swapped.favours * math.expm1(-swapped.eps / 2) ** 2
        if (k - m) * (1 - apart) ** t < guessing.SAME:
            return Chance(self.m.p1 / m)
        member = loss_of(swapped).guess(k, m)
        of_member = (rest + (1 - rest) * member) / (k * rest + (1 - rest) * m)
        return Chance(min(of_member, guessing.bound(self.eps_t(int(t)), k)), exact=False)


class LongitudinalSubset(Subsets, Longitudinal):
    """L-SS: the memo is a set of m values, and each report is a set of w values that is drawn from the memo.

    Args:
        k: domain size, in [2, 1024].
        eps_inf: loss of the memo, up to 700 nats.
        eps_1: loss of a single report, in [1e-9, eps_inf) nats; for m ≠ w the maximum is lower (`ledger.subset.largest_eps_1`).
        memo_size: m, in [1, k/2]; default: the size with the smallest variance of many reports.
        omega: w, in [1, k/2]; default: the size with the smallest variance of one report.
        steps: number of reports whose mean is published; the default sizes have the smallest variance of this mean, if the two
            best ones cannot reach eps_1.
        guess_at_most: the largest chance of a right guess from all reports, for the default of `memo_size`; the smallest chance
            is that of k/2.

    >>> m = LongitudinalSubset(k=20, eps_inf=2.0, eps_1=1.0)
    >>> m.memo_size, m.omega, round(m.variance(n=10_000), 6), round(m.variance(n=10_000, steps=24), 6)
    (2, 5, 0.000322, 6.6e-05)
    >>> LongitudinalSubset(k=20, eps_inf=2.0, eps_1=1.9, memo_size=2, omega=5)
    Traceback (most recent call last):
    ValueError: eps_1 must be in (0, 1.26853) for L-SS with k=20, eps_inf=2, memo_size=2 and omega=5, got 1.9
    """

    claims_by = LongitudinalSubsetClaims
    names = ("L-SS",)
    most_values = 1024
    name = "L-SS"
    randomizer = MemoizedSubsetRandomizer
    read_by = MemoizedSubsetReading

    def __init__(
        self,
        k: int,
        eps_inf: float,
        eps_1: float,
        memo_size: int | None = None,
        omega: int | None = None,
        steps: int = 1,
        guess_at_most: float | None = None,
    ) -> None:
        self._set_domain(k)
        self.eps_inf, self.eps_1 = chain_epsilons(eps_inf, eps_1)
        m, w = (s if s is None else integer(n, s, 1, self.k // 2) for n, s in (("memo_size", memo_size), ("omega", omega)))
        least = 1 if guess_at_most is None else least_memo_size(self.k, self.eps_inf, guess_at_most)
        self.memo_size, w = best_sizes(self.k, self.eps_inf, self.eps_1, m, w, steps, least)
        limit = largest_eps_1(self.k, self.memo_size, w, self.eps_inf)
        wrong = f"eps_1 must be in (0, {limit:g}) for L-SS with k={self.k}, eps_inf={self.eps_inf:g}, "
        wrong += f"memo_size={self.memo_size} and omega={w}, got {self.eps_1!r}"
        if self.eps_1 >= limit:
            raise ValueError(wrong)
        self.set_rounds = SubsetRounds.calibrated(self.k, self.memo_size, w, self.eps_inf, self.eps_1)
        if self.set_rounds.log_theta > MOST_LOG_ODDS:
            raise ValueError(f"{wrong}, which is too near the limit: the odds of a device must be at most e^{MOST_LOG_ODDS}")
        self.odds = Odds.of(math.expm1(self.set_rounds.log_theta))
        bits = self.k + min(self.memo_size, w) * 4 * len(self.odds.numerator)
        if bits > MOST_BITS:
            raise ValueError(
                f"the integers of a device must have at most {MOST_BITS} bits, got up to {bits} for L-SS with k={self.k}, "
                f"eps_inf={self.eps_inf:g}, eps_1={self.eps_1:g}, memo_size={self.memo_size} and omega={w}"
            )
        self.memo = RandomSubset(self.k, self.memo_size, self.eps_inf)
        self._set_report(RandomSubset(self.k, w, self.eps_1))
        self.n_keys = self.max_memos = self.k
        overlap = self.set_rounds.mean_overlap
        self.p1, self.q1 = self.memo.p, self.memo.q
        self.p2, self.q2 = overlap / self.memo_size, (w - overlap) / (self.k - self.memo_size)
        self.signature = (
            f"L-SS(k={self.k}, eps_inf={self.eps_inf!r}, eps_1={self.eps_1!r}, memo_size={self.memo_size}, omega={w})"
        )

    def coins(self) -> Coins:
        return {"memo": {"with_value": self.memo.coin}, "report": {}}

    def device_fields(self) -> dict[str, Any]:
        return {"omega": self.omega, "memo_size": self.memo_size, "odds": self.odds}

    def memoize(self, values: npt.ArrayLike, rng: np.random.Generator, enrolment: IntArray | None = None) -> Reports:
        return self.memo.rows(user_values(values, self.k), rng)

    def report(self, memos: npt.ArrayLike, rng: np.random.Generator) -> Reports:
        from ldpstream.mechanisms.kernels.random_kernels import settle

        memo, sums = np.ascontiguousarray(self._as_memos(memos)), np.cumsum(self.set_rounds.overlaps)
        overlaps = np.searchsorted(sums[:-1], rng.random(len(memo)), side="right")
        rows = changed_rows(memo, self.p2, self.q2, self.k, rng)
        settle(rows, memo, overlaps, self.omega, self.k, rng.integers(0, 2**64, 4, np.uint64))
        return rows

    def valid_memos(self, memos: Reports) -> npt.NDArray[np.bool_]:
        return has_ones(memos, self.k, self.memo_size)
