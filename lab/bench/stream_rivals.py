"""The seven methods of LDP-IDS, which publish a histogram at every step under w-event ε-LDP.

    uniform       LBU, LPU   a part of 1/w at every step
    sampling      LSP        the whole allowance at every w-th step; the other steps repeat the last histogram
    distribution  LBD, LPD   half of what the window has left for histograms, if the stream has changed
    absorption    LBA, LPA   1/(2w), plus the unused parts of earlier steps, if the stream has changed

The allowance of a window is the budget ε (LBU, LSP, LBD, LBA) or the population (LPU, LPD, LPA). The last two pairs of methods
have half of the allowance for histograms. They use the other half, 1/(2w) at every step, to see whether the stream has changed.

Source: Ren, Shi, Yu, Yang, Zhao and Xu, *LDP-IDS: Local Differential Privacy for Infinite Data Streams*, SIGMOD 2022,
arXiv:2204.00526.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from lab.bench.stream_data import Stream
from ldpstream.mechanisms.arguments import FloatArray, IntArray
from ldpstream.mechanisms.families.grr import probabilities
from ldpstream.mechanisms.families.unary import optimized

MIN_EPS = 1e-6  # nats; the smallest part of a budget with which a histogram is collected


@dataclass(frozen=True, slots=True)
class Oracle:
    k: int
    p: float
    q: float
    one_hot: bool

    def mean_variance(self) -> float:
        """Mean over the values of n times the variance that the randomization gives an estimate from n reports.

        The variance of value v is [q(1-q) + f_v (p(1-p) - q(1-q))] / (n (p-q)²), and the shares f_v sum to 1:

            GRR   (k-2+e^ε) / (e^ε-1)² + (1/k) (k-2) / (e^ε-1)
            OUE   4e^ε / (e^ε-1)² + 1/k
        """
        p, q = self.p, self.q
        return (q * (1 - q) + (p * (1 - p) - q * (1 - q)) / self.k) / (p - q) ** 2

    def supports(self, counts: IntArray, rng: np.random.Generator) -> IntArray:
        n = int(counts.sum())
        if self.one_hot:  # a report is the value with probability p-q, otherwise a random one of all k values
            kept = rng.binomial(counts, self.p - self.q)
            return np.asarray(kept + rng.multinomial(n - kept.sum(), np.full(self.k, 1 / self.k)))
        return np.asarray(rng.binomial(counts, self.p) + rng.binomial(n - counts, self.q))


@lru_cache(1024)
def oracle(k: int, eps: float) -> Oracle:
    one, many = optimized(eps), probabilities(k, eps)
    return min(Oracle(k, *many, True), Oracle(k, one.p, one.q, False), key=Oracle.mean_variance)


@dataclass(frozen=True, slots=True)
class Histogram:
    """An unbiased histogram from one collection.

    Attributes:
        shares: (k,) estimated shares among the people present.
        present: number of reports divided by the number of people asked.
        mean_variance: unbiased estimate of the mean over the values of the variance of `shares`.
        spread: estimate of the mean over the values v of f_v (1 - f_v), clipped to the possible range.
    """

    shares: FloatArray
    present: float
    mean_variance: float
    spread: float


def collect(people: IntArray, asked: int, eps: float, rng: np.random.Generator) -> Histogram:
    """The histogram from a random group; each person of the group reports with a loss of eps nats.

    A share from m of M people has the variance R/m + s f(1-f): R/m from the randomization, s = (M-m)/((M-1)m) from the draw
    without replacement. If c is the estimate of f, that of f(1-f) is (c(1-c) + R/m) / (1-s).
    """
    total, k = int(people.sum()), people.size - 1
    group = people if asked == total else rng.multivariate_hypergeometric(people, asked, method="marginals")
    m = int(group[:k].sum())
    if m == 0:
        return Histogram(np.full(k, 1 / k), 0.0, np.inf, 0.0)
    fo = oracle(k, eps)
    shares = (fo.supports(group[:k], rng) / m - fo.q) / (fo.p - fo.q)
    noise, drawn = fo.mean_variance() / m, sampled(total, asked, m)
    spread = (float(np.mean(shares * (1 - shares))) + noise) / (1 - drawn) if drawn < 1 else 0.0
    return Histogram(shares, m / asked, noise + drawn * spread, min(max(spread, 0.0), (1 - 1 / k) / k))


def sampled(total: int, asked: int, reports: float) -> float:
    return (total - asked) / ((total - 1) * reports)


def dissimilarity(fresh: Histogram, last: FloatArray) -> float:
    return float(np.mean((fresh.shares - last) ** 2)) - fresh.mean_variance


@dataclass(frozen=True, slots=True)
class Published:
    shares: FloatArray
    spent: FloatArray


class Division(ABC):
    """The allowance of a window of w steps: nats of each person, or number of people."""

    whole: float
    least: float

    def __init__(self, stream: Stream, eps: float, w: int, rng: np.random.Generator) -> None:
        self.stream, self.eps, self.w, self.rng = stream, eps, w, rng

    @abstractmethod
    def part(self, amount: float) -> float:
        pass

    @abstractmethod
    def collect(self, step: int, amount: float) -> Histogram:
        pass

    @abstractmethod
    def error(self, fresh: Histogram, amount: float) -> float:
        pass


class Budget(Division):
    least = MIN_EPS

    def __init__(self, stream: Stream, eps: float, w: int, rng: np.random.Generator) -> None:
        super().__init__(stream, eps, w, rng)
        self.whole = eps

    def part(self, amount: float) -> float:
        return amount

    def collect(self, step: int, amount: float) -> Histogram:
        return collect(self.stream.people[step], self.stream.n, amount, self.rng)

    def error(self, fresh: Histogram, amount: float) -> float:
        return oracle(self.stream.k, amount).mean_variance() / max(self.stream.n * fresh.present, 1)


class Population(Division):
    least = 1

    def __init__(self, stream: Stream, eps: float, w: int, rng: np.random.Generator) -> None:
        super().__init__(stream, eps, w, rng)
        self.whole = stream.n

    def part(self, amount: float) -> float:
        return int(amount)

    def collect(self, step: int, amount: float) -> Histogram:
        return collect(self.stream.people[step], int(amount), self.eps, self.rng)

    def error(self, fresh: Histogram, amount: float) -> float:
        reports = max(amount * fresh.present, 1)
        noise = oracle(self.stream.k, self.eps).mean_variance() / reports
        return noise + sampled(self.stream.n, int(amount), reports) * fresh.spread


def uniform(d: Division) -> Published:
    steps, part = len(d.stream.people), d.part(d.whole / d.w)
    shares = np.array([d.collect(t, part).shares for t in range(steps)])
    return Published(shares, np.tile([0, part], (steps, 1)))


def sampling(d: Division) -> Published:
    steps = len(d.stream.people)
    spent = np.zeros((steps, 2))
    spent[:: d.w, 1] = d.whole
    fresh = [d.collect(t, d.whole).shares for t in range(0, steps, d.w)]
    return Published(np.repeat(fresh, d.w, axis=0)[:steps], spent)


def distribution(d: Division) -> Published:
    pool = d.part(d.whole / 2)

    def offer(t: int, spent: FloatArray) -> float:
        return d.part((pool - spent[max(0, t - d.w + 1) : t, 1].sum()) / 2)

    return _adaptive(d, offer)


def absorption(d: Division) -> Published:
    unit = d.part(d.whole / (2 * d.w))

    def offer(t: int, spent: FloatArray) -> float:
        published = np.flatnonzero(spent[:t, 1])
        if not published.size:  # before the first histogram, all steps so far are unused
            return unit * min(t + 1, d.w)
        last = published[-1]
        nullified = round(spent[last, 1] / unit) - 1
        unused = t - last - nullified
        return unit * min(unused, d.w) if unused > 0 else 0

    return _adaptive(d, offer)


def _adaptive(d: Division, offer: Callable[[int, FloatArray], float]) -> Published:
    steps, unit = len(d.stream.people), d.part(d.whole / (2 * d.w))
    shares, spent = np.empty((steps, d.stream.k)), np.zeros((steps, 2))
    for t in range(steps):
        fresh = d.collect(t, unit)
        spent[t, 0] = unit
        amount = offer(t, spent)
        changed = t == 0 or (amount >= d.least and dissimilarity(fresh, shares[t - 1]) > d.error(fresh, amount))
        shares[t] = d.collect(t, amount).shares if changed else shares[t - 1]
        spent[t, 1] = amount if changed else 0
    return Published(shares, spent)


RIVALS: dict[str, tuple[type[Division], Callable[[Division], Published]]] = {
    "LBU": (Budget, uniform),
    "LSP": (Budget, sampling),
    "LBD": (Budget, distribution),
    "LBA": (Budget, absorption),
    "LPU": (Population, uniform),
    "LPD": (Population, distribution),
    "LPA": (Population, absorption),
}


def publish(name: str, stream: Stream, eps: float, w: int, rng: np.random.Generator) -> Published:
    """The output of one of the `RIVALS` for the stream, under w-event ε-LDP, with ε in nats."""
    division, method = RIVALS[name]
    return method(division(stream, eps, w, rng))
