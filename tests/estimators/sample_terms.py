"""Mechanisms, count tables and terms for the tests of likelihoods and of their maximum."""

import math
from functools import lru_cache

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from lab.papers.location.geometric import TruncatedGeometric
from ldpstream.estimators.estimate import Group
from ldpstream.estimators.maximum.optimum import evaluate
from ldpstream.mechanisms import NAMES, ONE_TIME, CountTable, Mechanism, mechanism
from ldpstream.mechanisms.arguments import FloatArray
from ldpstream.mechanisms.counts.terms import SupportTerm, Term
from ldpstream.mechanisms.families.subset import Subsets

K = 6


@lru_cache
def make(name: str, k: int = K, eps_1: float = 1.0) -> Mechanism:
    return mechanism(name, k, eps=eps_1) if name in ONE_TIME else mechanism(name, k, eps_inf=2 * eps_1, eps_1=eps_1)


def collect(m: Mechanism, n: int, seed: int) -> CountTable:
    """Returns the reports of people whose values have shares proportional to 1/(1+v)²."""
    rng = np.random.default_rng(seed)
    shares = 1 / (1 + np.arange(m.k)) ** 2
    values = rng.choice(m.k, n, p=shares / shares.sum())
    return m.tabulate(m.simulate(values, rng))


@st.composite
def tables(draw: st.DrawFn, wild: bool = True) -> Group:
    """Draws a table of any pure mechanism with six values; honest people could not produce some of these tables."""
    name = draw(st.sampled_from(NAMES))
    eps = [0.5, 1.0, 2.0] + [1e-3] * wild + [300.0] * (wild and "LH" not in name)
    m = make(name, eps_1=draw(st.sampled_from(eps)))
    top = draw(st.sampled_from([1, 20, 10**6] + [2**62 // math.prod(m.table_shape)] * wild))
    if isinstance(m, Subsets):  # any sets of ω values; each set occurs any number of times
        times = draw(st.lists(st.integers(0, top // K), min_size=1, max_size=K))
        sets = [draw(st.permutations(range(K)))[: m.omega] for _ in times]
        counts = sum((n * np.isin(np.arange(K), members) for n, members in zip(times, sets)), np.zeros(K, np.int64))
        return m, m.table(sum(times), counts)
    counts = draw(arrays(np.int64, m.table_shape, elements=st.integers(0, top)))
    return m, m.table(max(int(counts.sum()), int(m.marks is None)), counts)


def closed_form(m: Mechanism, support: FloatArray) -> FloatArray:
    """Returns max(0, c/λ - q/(p-q)), computed by one sort, as in the papers."""
    floor = m.q / (m.p - m.q)
    descending = np.sort(support)[::-1]
    scale = np.cumsum(descending) / (1 + np.arange(1, m.k + 1) * floor)
    last = np.flatnonzero(descending > scale * floor)[-1]
    f = np.maximum(support / scale[last] - floor, 0)
    return np.asarray(f / f.sum())


class DenseTerm:
    """A log-likelihood from a dense channel. The tests use it as the reference, and as a term that is not separable."""

    def __init__(self, channel: FloatArray, table: CountTable) -> None:
        self.k, self.n = len(channel), table.n
        self.channel, self.counts = channel, table.counts.ravel().astype(float)

    def __call__(self, f: FloatArray) -> tuple[float, FloatArray]:
        seen = self.counts > 0
        gamma = np.maximum((f @ self.channel)[seen], 1e-130)
        gradient = self.channel[:, seen] @ (self.counts[seen] / gamma)
        return float((self.counts[seen] * np.log(gamma)).sum()), gradient


def value(terms: list[Term], f: FloatArray) -> float:
    return evaluate(terms, f)[0]


def support_term(m: Mechanism, table: CountTable) -> SupportTerm:
    return SupportTerm(m.support(table), table.n, m.p, m.q)


def dense_terms() -> list[Term]:
    blurred, symbols = TruncatedGeometric(k=40, eps=0.5), make("GRR", 40, 2.0)
    rng = np.random.default_rng(12)
    values = rng.choice(40, 4000, p=np.r_[np.full(10, 0.08), np.zeros(20), np.full(10, 0.02)])
    return [
        DenseTerm(blurred.channel(), blurred.tabulate(blurred.report(values[:3000], rng))),
        support_term(symbols, symbols.tabulate(symbols.simulate(values[3000:], rng))),
    ]
