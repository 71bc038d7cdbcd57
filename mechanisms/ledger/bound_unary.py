"""Upper bound of the loss of t reports of UE∘UE between any two value sequences, by a linear programme.

Notation and model are those of `sequence_unary`. The bound replaces u_h by a linear lower bound, whose coefficients are called
its *prices*.

1. The range of s, a bit's number of reported ones, is divided into intervals i, each with prices (p_i, q_i). For all blocks
   (a, b) ≠ (0, 0) let p_i a + q_i b be at most u_0(αa - βb) + κ_0i, and at most u_1(αa - βb) + κ_1i + λ(a+b). If x' has R
   values, the sum over its blocks gives

       ln P(y|x') >= Σ_bits [p_i s + q_i (t-s) - R κ_0i] - Σ_{hot bits of x'} (κ_1i - κ_0i) - λt,   i = i(s)

2. The gain of a bit is the bit's part of ln P(y|x) minus the bit's part of this lower bound. The loss is at most the largest
   sum of gains over x, R, and the choice of R hot bits in x'. Within an interval i, the gain of a bit is convex in the bit's
   numbers of reported ones in the blocks of x, so the maximum is at a vertex of the interval's region (`_few_blocks`).
3. For an x with r or more blocks let γ = min(u_0(2α) - 2u_0(α), u_0(-2β) - 2u_0(-β)) > 0. A bit that is cold in x adds at most
   N_r(s): the sum of u_0 over r pure blocks, all but two of them single steps. A bit that is hot in a block of size n adds at
   most u_1(αa - β(n-a)) + u_0(αa') + u_0(-βb') - (r-3)γ with a' ones and b' zeros elsewhere (`_many_blocks`).
4. A linear programme with cutting planes finds the prices.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations_with_replacement, product
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ldpstream.mechanisms.arguments import FloatArray, IntArray

_FULL_T, _FULL_VALUES = 64, 16  # if there are more steps and more values of x' than this, all intervals share κ
_FEW_BITS = 8  # up to this k, we try x with three blocks
_LATTICE = 1024  # we try every count of zeros in a block up to this limit
_TOLERANCE = 1e-10  # relative difference of two bounds
_ACCURATE = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}


@dataclass(frozen=True, slots=True)
class UnaryRounds:
    """Both rounds of a memoized unary encoding, as natural logarithms.

    Attributes:
        log_p1, log_not_p1: ln p₁ and ln(1-p₁), p₁ = Pr[memo bit is 1 | the bit is 1].
        log_q1, log_not_q1: ln q₁ and ln(1-q₁), q₁ = Pr[memo bit is 1 | the bit is 0] < p₁.
        log_p2, log_not_p2: ln p₂ and ln(1-p₂), p₂ = Pr[report bit is 1 | memo bit is 1].
        log_q2, log_not_q2: ln q₂ and ln(1-q₂), q₂ = Pr[report bit is 1 | memo bit is 0] < p₂.

    Raises:
        ValueError: if a logarithm is positive or infinite, if the probabilities of a pair do not sum to 1, or if q >= p.
    """

    log_p1: float
    log_not_p1: float
    log_q1: float
    log_not_q1: float
    log_p2: float
    log_not_p2: float
    log_q2: float
    log_not_q2: float

    def __post_init__(self) -> None:
        for name in ("p1", "q1", "p2", "q2"):
            pair = getattr(self, f"log_{name}"), getattr(self, f"log_not_{name}")
            inside = all(math.isfinite(x) and x <= 0 for x in pair)
            if not inside or abs(math.exp(pair[0]) + math.exp(pair[1]) - 1) > 1e-9:
                raise ValueError(f"log_{name} and log_not_{name} must be the logarithms of x and 1-x, got {pair!r}")
        for p, q in (("p1", "q1"), ("p2", "q2")):
            if self.odds(p) <= self.odds(q):
                raise ValueError(f"{q} must be less than {p}, got {self!r}")

    def odds(self, name: str) -> float:
        """ln(x/(1-x)) for x = p1, q1, p2 or q2."""
        return float(getattr(self, f"log_{name}") - getattr(self, f"log_not_{name}"))

    @property
    def alpha(self) -> float:
        """α = ln(p₂/q₂), in nats: the loss about the memo's bit from a reported bit 1."""
        return self.log_p2 - self.log_q2

    @property
    def beta(self) -> float:
        """β = ln((1-q₂)/(1-p₂)), in nats: the loss about the memo's bit from a reported bit 0."""
        return self.log_not_q2 - self.log_not_p2

    def u(self, hot: int, w: npt.ArrayLike) -> FloatArray:
        """u_h(w), elementwise."""
        one, zero = (self.log_p1, self.log_not_p1) if hot else (self.log_q1, self.log_not_q1)
        w = np.asarray(w, np.float64)
        near = np.log1p(math.exp(one) * np.expm1(np.clip(w, -1.0, 1.0)))
        return np.where(np.abs(w) < 1, near, np.logaddexp(one + w, zero))

    def weight(self, ones: npt.ArrayLike, zeros: npt.ArrayLike) -> FloatArray:
        """w = αa - βb, elementwise."""
        return self.alpha * np.asarray(ones, np.float64) - self.beta * np.asarray(zeros, np.float64)


@dataclass(frozen=True, slots=True)
class _Kind:
    interval: IntArray
    ones: IntArray
    value: FloatArray


class _Bits(NamedTuple):
    many: float
    kind: int
    plus: float


class PriceProgramme:
    """Linear programme for the prices. The variables are p_i, q_i, κ_0i, κ_1i, λ, and the bound divided by k t."""

    def __init__(self, t: int, k: int, rounds: UnaryRounds) -> None:
        self.t, self.k, self.rounds = t, k, rounds
        self.unit = rounds.alpha + rounds.beta  # unit of the variables
        self.one, self.zero = float(rounds.u(0, rounds.alpha)), float(rounds.u(0, -rounds.beta))  # u_0 of one 1, of one 0
        self.shared = t > _FULL_T and min(t, k) > _FULL_VALUES
        balance = int(t * rounds.beta / self.unit)
        ends = {balance} if self.shared else {balance, (balance + t) // 2, t - 1}
        highs = [*sorted(s for s in ends if 0 <= s < t), t]
        self.intervals = list(zip([0, *(s + 1 for s in highs[:-1])], highs))
        marks = {1, *(m for low, high in self.intervals for m in (low, high, t - low, t - high))}
        self.marks = sorted(m for m in marks if 1 <= m < t)  # block sizes at which vertices change
        most = min(t, k)
        self.few = 3 if k <= _FEW_BITS else 2  # `_few_blocks` tries x with at most this many blocks
        self.values = np.array(sorted({1, most})) if self.shared else np.arange(1, most + 1)  # R: distinct values of x'
        self.kinds: list[_Kind] = []
        sequences = [*self._few_blocks(), *self._many_blocks()]
        width = max(len(bits) for bits in sequences)
        table = np.array([[*bits, *[(0.0, 0, 0.0)] * (width - len(bits))] for bits in sequences])
        self.counts, self.members, self.plus = table[:, :, 0], table[:, :, 1].astype(np.int64), table[:, :, 2]
        self.starts = np.cumsum([0, *(len(kind.ones) for kind in self.kinds)])
        self.interval, self.ones, self.value = (
            np.concatenate([getattr(kind, name) for kind in self.kinds]) for name in ("interval", "ones", "value")
        )
        self.rows: list[FloatArray] = []
        self.limits: list[float] = []

    def _kind(self, interval: IntArray, ones: IntArray, value: FloatArray) -> int:
        self.kinds.append(_Kind(interval, ones, value))
        return len(self.kinds) - 1

    # -- sequences x

    def _few_blocks(self) -> Iterator[list[_Bits]]:
        t, k, rounds = self.t, self.k, self.rounds
        sizes = {
            tuple(sorted((*some, t - sum(some))))
            for blocks in range(1, min(self.few, t, k) + 1)
            for some in combinations_with_replacement(self.marks, blocks - 1)
            if sum(some) < t
        }
        for n in sorted(sizes):
            interval, ones = self._vertices(np.array(n))
            weight = rounds.weight(ones, np.array(n) - ones)
            cold = rounds.u(0, weight)
            more = rounds.u(1, weight) - cold
            total, reported = cold.sum(axis=1), ones.sum(axis=1)
            hot = [self._kind(interval, reported, total + more[:, block]) for block in range(len(n))]
            cold_kind = self._kind(interval, reported, total)
            yield [_Bits(k - len(n), cold_kind, 0.0), *(_Bits(1.0, kind, 0.0) for kind in hot)]

    def _vertices(self, sizes: IntArray) -> tuple[IntArray, IntArray]:
        blocks = len(sizes)
        corners = np.array(list(product((0, 1), repeat=blocks))) * sizes
        numbers, found = [], []
        for number, (low, high) in enumerate(self.intervals):
            points = [corners[(corners.sum(axis=1) >= low) & (corners.sum(axis=1) <= high)]]
            for free, ones in product(range(blocks), (low, high)):
                edge = corners[corners[:, free] == 0].copy()
                edge[:, free] = ones - edge.sum(axis=1)
                points.append(edge[(edge[:, free] >= 0) & (edge[:, free] <= sizes[free])])
            found.append(np.concatenate(points))
            numbers.append(np.full(len(found[-1]), number))
        return np.concatenate(numbers), np.concatenate(found)

    def _many_blocks(self) -> Iterator[list[_Bits]]:
        t, k, u, alpha, beta = self.t, self.k, self.rounds.u, self.rounds.alpha, self.rounds.beta
        gamma = float(min(u(0, 2 * alpha) - 2 * u(0, alpha), u(0, -2 * beta) - 2 * u(0, -beta)))
        hottest = {}
        for size in {1, *self.marks, *(t - low + 1 for low, _ in self._groups())}:
            interval, ones = self._vertices(np.array([size, t - size]))
            own = u(1, alpha * ones[:, 0] - beta * (size - ones[:, 0]))
            others = u(0, alpha * ones[:, 1]) + u(0, -beta * (t - size - ones[:, 1]))
            hottest[size] = self._kind(interval, ones.sum(axis=1), own + others)
        for low, high in self._groups():
            points = [
                (number, ones)
                for number, interval in enumerate(self.intervals)
                for ones in {*interval, 1, low - 1, t - low + 1, t - 1}
                if interval[0] <= ones <= interval[1]
            ]
            interval, ones = np.array(points).T
            cold = self._kind(interval, ones, np.array([max(self._pure_blocks(s, low)) for s in ones.tolist()]))
            hot = {0: (cold, 0.0)} | {n: (kind, (3 - low) * gamma) for n, kind in hottest.items() if n <= t - low + 1}
            for small, large in product(hot, hot):
                if small * high <= t < large * high or small * high == t == large * high:
                    share = (t / high - small) / max(large - small, 1)
                    kinds = ((cold, 0.0), hot[small], hot[large])
                    counts = (k - high, high * (1 - share), high * share)
                    yield [_Bits(count, kind, plus) for count, (kind, plus) in zip(counts, kinds)]

    def _groups(self) -> Iterator[tuple[int, int]]:
        low, most = self.few + 1, min(self.t, self.k)
        while low <= most:
            high = min(most, low if low < 8 else low + low // 4)
            yield low, high
            low = high + 1

    def _pure_blocks(self, ones: int, blocks: int) -> Iterator[float]:
        alpha, beta, u, zeros = self.rounds.alpha, self.rounds.beta, self.rounds.u, self.t - ones
        if ones and zeros:
            splits = [(i + 1, blocks - i - 1) for i in (max(0, blocks - 1 - zeros), min(blocks - 2, ones - 1))]
        else:
            splits = [(blocks if ones else 0, blocks if zeros else 0)]
        for of_ones, of_zeros in splits:
            total = 0.0
            if of_ones:
                total += float(u(0, alpha * (ones - of_ones + 1)) + (of_ones - 1) * self.one)
            if of_zeros:
                total += float(u(0, -beta * (zeros - of_zeros + 1)) + (of_zeros - 1) * self.zero)
            yield total

    # -- sequences x'

    def _dearest(self, p: FloatArray, q: FloatArray, surcharge: float) -> tuple[FloatArray, FloatArray]:
        """Returns κ (2, I), and the blocks (a, b) at the maximum.

        κ is the maximum, over blocks, of p a + q b - u_h(αa - βb), minus λ(a+b) if h = 1; or an upper bound of that maximum.
        Above `_LATTICE` zeros, a and b may be real numbers. A step along a line αa - βb = w then gains pβ + qα <= 0, so the
        line's first point is the best.
        """
        t, alpha, beta, u = self.t, self.rounds.alpha, self.rounds.beta, self.rounds.u
        zeros = np.arange(min(t, _LATTICE) + 1.0)
        kappa, blocks = np.empty((2, len(p))), np.empty((2, len(p), 2))
        for hot, name in enumerate(("q1", "p1")):
            p, q = p - hot * surcharge, q - hot * surcharge
            level = _log_odds(p / alpha) - self.rounds.odds(name)
            real = np.clip((level[:, None] + beta * zeros) / alpha, 0.0, t - zeros)
            near = np.stack((np.floor(real), np.minimum(np.floor(real) + 1, t - zeros)))
            near[:, :, 0] = np.maximum(near[:, :, 0], 1.0)  # the block (0, 0) is excluded
            value = p[:, None] * near + q[:, None] * zeros - u(hot, alpha * near - beta * zeros)
            for i in range(len(p)):
                side, b = np.unravel_index(value[:, i].argmax(), value[:, i].shape)
                kappa[hot, i], blocks[hot, i] = value[side, i, b], (near[side, i, b], b)
            if t > _LATTICE:
                b = np.clip(-level / beta, zeros[-1], t)
                a = np.clip((level + beta * b) / alpha, 0.0, t - b)
                drift = np.maximum(p * beta + q * alpha, 0.0) * t / (alpha + beta)  # 0 if the solution is accurate
                beyond = p * a + q * b - u(hot, alpha * a - beta * b) + drift
                blocks[hot] = np.where((beyond > kappa[hot])[:, None], np.stack((a, b), axis=1), blocks[hot])
                kappa[hot] = np.maximum(kappa[hot], beyond)
        if self.shared:
            kappa[:] = kappa.max(axis=1, keepdims=True)
        return kappa, blocks

    def _gains(self, p: FloatArray, q: FloatArray, kappa: FloatArray) -> tuple[FloatArray, IntArray]:
        cold, hot = (np.maximum.reduceat(found, self.starts[:-1], axis=1) for found in self._best(p, q, kappa))
        surplus = (hot - cold)[:, self.members]  # (R, sequences, kinds): extra gain of a bit that is hot in x'
        order = np.argsort(-surplus, axis=2)
        counts = np.broadcast_to(self.counts, surplus.shape)
        before = np.cumsum(np.take_along_axis(counts, order, 2), axis=2)
        taken = np.diff(np.minimum(before, self.values[:, None, None]), axis=2, prepend=0.0)  # bits that are hot in x'
        total = (counts * (cold[:, self.members] + self.plus)).sum(axis=2)
        total += (taken * np.take_along_axis(surplus, order, 2)).sum(axis=2)
        return total.max(axis=0), total.argmax(axis=0)

    def _best(self, p: FloatArray, q: FloatArray, kappa: FloatArray) -> tuple[FloatArray, FloatArray]:
        net = self.value - p[self.interval] * self.ones - q[self.interval] * (self.t - self.ones)
        cold = net + self.values[:, None] * kappa[0, self.interval]
        return cold, cold + (kappa[1] - kappa[0])[self.interval]

    def _slopes(self, x: int, row: int, best: tuple[FloatArray, FloatArray]) -> tuple[FloatArray, float]:
        slopes, constant, chosen = np.zeros((4, len(self.intervals))), 0.0, []
        for place, kind in enumerate(self.members[x]):
            part = slice(self.starts[kind], self.starts[kind + 1])
            cold, hot = best[0][row, part], best[1][row, part]
            chosen.append((float(hot.max() - cold.max()), place, part.start + cold.argmax(), part.start + hot.argmax()))
        values = left = float(self.values[row])
        for _, place, cold_vertex, hot_vertex in sorted(chosen, reverse=True):
            count = float(self.counts[x, place])
            both = min(count, left)
            left -= both
            constant += count * float(self.plus[x, place])
            for vertex, bits, is_hot in ((hot_vertex, both, 1), (cold_vertex, count - both, 0)):
                ones = float(self.ones[vertex])
                constant += bits * float(self.value[vertex])
                slopes[:, self.interval[vertex]] += bits * np.array([-ones, ones - self.t, values - is_hot, is_hot])
        return slopes.ravel(), constant

    # -- cutting planes

    def _add(self, coefficients: FloatArray, limit: float, scale: float) -> None:
        self.rows.append(coefficients / scale)
        self.limits.append(limit / scale / self.unit)

    def _block(self, interval: int, ones: float, zeros: float) -> None:
        number = len(self.intervals)
        for hot in (0, 1):
            row = np.zeros(4 * number + 2)
            row[[interval, number + interval, (2 + hot) * number + interval]] = ones, zeros, -1
            row[4 * number] = -hot * (ones + zeros)
            self._add(row, float(self.rounds.u(hot, self.rounds.weight(ones, zeros))), max(1.0, (ones + zeros) / 100))

    def _evaluate(self, p: FloatArray, q: FloatArray, surcharge: float) -> tuple[float, FloatArray, FloatArray]:
        kappa, blocks = self._dearest(p, q, surcharge)
        gains, rows = self._gains(p, q, kappa)
        best = self._best(p, q, kappa)
        scale = float(self.k) * self.t
        for sequence in np.argsort(-gains)[:8]:
            slopes, constant = self._slopes(int(sequence), int(rows[sequence]), best)
            self._add(np.append(slopes, (self.t, -scale)), -constant, scale)
        return float(gains.max()) + surcharge * self.t, kappa, blocks

    def bound(self, enough: float = math.inf) -> float:
        """Returns the smallest bound found. Stops the solution early if no bound below `enough` exists."""
        from scipy.optimize import linprog  # slow to load; a device needs it only for `spent`

        t, rounds, number = self.t, self.rounds, len(self.intervals)
        most = min(t, self.k)
        for interval in range(number):
            for ones, zeros in ((1, 0), (0, 1), (1, 1), (t // most, 0), (0, t // most), (t, 0), (0, t)):
                self._block(interval, ones, zeros)
            for surcharged in (0, 1) if t > _LATTICE else ():  # for the reason see `_dearest`
                row = np.zeros(4 * number + 2)
                row[[interval, number + interval, 4 * number]] = rounds.beta, rounds.alpha, -surcharged * self.unit
                self._add(row, 0.0, self.unit)
        if self.shared:
            for hot, interval in product((2, 3), range(1, number)):
                row = np.zeros(4 * number + 2)
                row[[hot * number, hot * number + interval]] = 1, -1
                self._add(row, 0.0, 1.0)
                self._add(-row, 0.0, 1.0)
        one, zero = self.one, self.zero
        guesses = ((one, min(-one, -one * rounds.beta / rounds.alpha)), (-zero * rounds.alpha / rounds.beta, zero))
        best = min(self._evaluate(np.full(number, p), np.full(number, q), 0.0)[0] for p, q in guesses)
        best = min(best, t * self.k * max(rounds.alpha, rounds.beta))  # the loss of the second round alone
        box = [(-10.0, 10.0)] * (2 * number) + [(-100.0, 100.0)] * (2 * number) + [(-10.0, 10.0), (None, None)]
        objective, before = np.append(np.zeros(4 * number + 1), 1.0), np.zeros(4 * number + 2)
        for _ in range(40):
            rows, limits = np.array(self.rows), np.array(self.limits)
            solution = linprog(objective, A_ub=rows, b_ub=limits, bounds=box, method="highs-ds", options=_ACCURATE)
            if solution.status != 0:
                break
            found = solution.x * self.unit
            if found[-1] * self.k * t >= enough:  # the optimum without the cuts that are still missing, so at most any bound
                break
            p, q, allowed = found[:number], found[number : 2 * number], found[2 * number : 4 * number]
            bound, kappa, blocks = self._evaluate(p, q, float(found[4 * number]))
            best = min(best, bound)
            if best - found[-1] * self.k * t <= _TOLERANCE * best or np.array_equal(found, before):
                break
            before = found
            for hot, interval in np.argwhere(kappa > allowed.reshape(2, -1) + 1e-12 * self.unit):
                self._block(int(interval), *blocks[hot, interval])
        return best


def _log_odds(share: FloatArray) -> FloatArray:
    inside = np.clip(share, 1e-300, 1 - 1e-16)
    return np.where(share <= 0, -np.inf, np.where(share >= 1, np.inf, np.log(inside) - np.log1p(-inside)))
