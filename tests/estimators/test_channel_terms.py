"""Compares the value and gradient of every term with those of the dense channel, for any frequencies."""

import math
import warnings
from itertools import product

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.papers.location.dense import DenseTerm
from lab.papers.location.geometric import GeometricTerm, PlanarGeometric, PlanarTerm, TruncatedGeometric
from lab.papers.location.shokri import Shokri
from lab.papers.reports_term import reports_term
from ldpstream.mechanisms import NAMES, ONE_TIME, Mechanism, mechanism
from ldpstream.mechanisms.arguments import FloatArray
from ldpstream.mechanisms.counts.terms import FakeDataTerm, SupportTerm, Term
from ldpstream.mechanisms.families.local_hashing import LocalHashing, LongitudinalHashing
from ldpstream.mechanisms.families.square_wave import SquareWave, WaveTerm
from tests.mechanisms.reference import WRITTEN

from .sample_terms import make

HASHING = [
    *[make(name, k, eps) for name in ("BLH", "OLH", "L-BLH", "L-OLH") for k, eps in product((2, 3, 17, 40), (0.5, 2.0))],
    *[LocalHashing("OLH", k, 1.0, g=g) for k, g in [(100, 4), (9, 9), (26, 25), (28, 3), (60, 53)]],
    LongitudinalHashing("L-OLH", 50, 3.0, 1.5, "paper"),
    LongitudinalHashing("L-OLH", 65, 3.0, 1.5, g=8),
]
LOCATION = [
    *[TruncatedGeometric(k, eps) for k, eps in product((2, 3, 30), (1e-9, 0.1, 1.0, 5.0))],
    *[PlanarGeometric(shape, eps) for shape in ((2, 2), (2, 5), (5, 2), (4, 3), (3, 7), (8, 8), (1, 6), (6, 1))
      for eps in (0.1, 1.0, 5.0)],
    Shokri([0.4, 0.3, 0.2, 0.1], np.abs(np.subtract.outer(np.arange(4.0), np.arange(4.0))), 0.6),
]  # fmt: skip
WAVES = [*[SquareWave(k, eps) for k, eps in product((2, 3, 30), (1e-9, 0.5, 2.0, 30.0))], SquareWave(6, 1.0, 6)]
TABLES = [*HASHING, *LOCATION, *WAVES, *[m.with_fake_data(3) for m in (HASHING[2], HASHING[-1], *LOCATION[8::9], *WAVES[5::5])]]


def dense(channel: FloatArray, counts: npt.NDArray[np.integer], f: FloatArray) -> tuple[float, FloatArray]:
    """Returns the value and gradient, by the formulas. If m is zero, the count must be zero."""
    m = f @ channel
    seen = counts > 0
    channel, counts, m = channel[:, seen], counts[seen], m[seen]
    return math.fsum(counts * np.log(m)), channel @ (counts / m)


def check(term: Term, channel: FloatArray, counts: npt.NDArray[np.integer], f: FloatArray) -> None:
    value, gradient = term(f)
    expected, expected_gradient = dense(channel, counts, f)
    assert value == pytest.approx(expected, rel=1e-10, abs=1e-10)
    np.testing.assert_allclose(gradient, expected_gradient, rtol=1e-10)
    assert f @ gradient == pytest.approx(term.n)  # therefore an EM step does not change the sum


@st.composite
def frequencies(draw: st.DrawFn, k: int) -> FloatArray:
    """Returns frequencies with zeros, of very different sizes, or all on one value. Their sum need not be 1."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    f = rng.dirichlet(np.full(k, draw(st.sampled_from([0.1, 1.0, 100.0]))))
    f[rng.random(k) < draw(st.sampled_from([0.0, 0.5, 0.95]))] = 0
    f[draw(st.integers(0, k - 1))] = draw(st.sampled_from([1e-6, 0.1, 1.0]))
    f *= draw(st.sampled_from([1.0, 1.0, 2.0])) / f.sum()
    return f


@settings(max_examples=250)
@given(st.sampled_from(TABLES), st.data())
def test_the_term_of_a_table_equals_the_dense_term(m: Mechanism, data: st.DataObject) -> None:
    f = data.draw(frequencies(m.k))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    channel = m.channel()
    counts = rng.integers(0, 50, m.table_shape)
    counts[rng.random(m.table_shape) < 0.5] = 0
    counts.reshape(-1)[f @ channel < 1e-100] = 0  # below 1e-100 the gradient is finite but not exact
    term = m.reading.likelihood(m.table(int(counts.sum()), counts))
    assert (term.k, term.n) == (m.k, counts.sum())
    check(term, channel, counts.ravel(), f)


def test_each_mechanism_gets_its_own_term() -> None:
    kinds: list[tuple[Mechanism, type]] = [
        *[(make(name, 5), WRITTEN[name].term) for name in NAMES],
        *[(make(n, 5).with_fake_data(2), FakeDataTerm if WRITTEN[n].term is not SupportTerm else SupportTerm) for n in NAMES],
        (TruncatedGeometric(5, 1.0), GeometricTerm),
        (PlanarGeometric((2, 3), 1.0), PlanarTerm),
        (PlanarGeometric((1, 3), 1.0), DenseTerm),
        (LOCATION[-1], DenseTerm),
        (SquareWave(5, 1.0), WaveTerm),
        (SquareWave(5, 1.0).with_fake_data(2), FakeDataTerm),
    ]
    for m, kind in kinds:
        term = m.reading.likelihood(m.empty_table())
        assert type(term) is kind
        with pytest.raises(ValueError, match="expected a count table of"):
            m.reading.likelihood(make("GRR", 4).empty_table())


def test_no_reports_add_nothing() -> None:
    for m in TABLES:
        term = m.reading.likelihood(m.empty_table())
        f = np.full(m.k, 1 / m.k)
        value, gradient = term(f)
        assert (value, term.n) == (0.0, 0)
        assert not gradient.any()


def test_an_impossible_report_makes_only_the_likelihood_zero() -> None:
    channel = np.array([[0.5, 0.5, 0.0], [0.0, 0.5, 0.5]])
    f = np.array([1.0, 0.0])
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        possible, impossible = DenseTerm(channel, np.array([3, 1, 0])), DenseTerm(channel, np.array([3, 0, 1]))
        assert possible(f)[0] == pytest.approx(4 * math.log(0.5))
        assert possible(f)[1].tolist() == [4.0, 1.0]
        value, gradient = impossible(f)
        assert value == -math.inf
        assert np.isfinite(gradient).all()
        assert gradient[1] > 1e100  # only the other value explains the reports


@pytest.mark.parametrize("eps", [36.0, 300.0, 699.0])
def test_extreme_privacy_parameters_stay_finite(eps: float) -> None:
    rng = np.random.default_rng(1)
    for m in (LocalHashing("OLH", 9, eps, g=3), LongitudinalHashing("L-OLH", 9, eps + 1, eps, g=3), TruncatedGeometric(9, eps)):
        counts = rng.integers(0, 9, m.table_shape)
        term = m.reading.likelihood(m.table(int(counts.sum()), counts))
        for f in (np.full(9, 1 / 9), np.eye(9)[4]):
            value, gradient = term(f)
            # far cells of the geometric mechanism underflow: a probability below e^-745 becomes zero
            assert value == -math.inf if "geometric" in m.name and f[4] == 1 and 4 * eps > 745 else math.isfinite(value)
            assert np.isfinite(gradient).all()


# ---- stored reports of bits

BITS = [name for name in NAMES if "UE" in name or name in ("THE", "SS")]


@pytest.mark.parametrize("name", BITS)
@pytest.mark.parametrize(("k", "eps", "n", "d"), [(2, 1.0, 300, 1), (5, 0.5, 9, 1), (8, 3.0, 300, 1), (7, 1.0, 40, 3)])
def test_terms_of_bit_reports_equal_the_dense_channel(name: str, k: int, eps: float, n: int, d: int) -> None:
    """Tests cases with fewer and with more reports than possible distinct reports. With more, the term groups equal reports."""
    eps_1 = eps / 2 if name in ("L-OUE", "L-SOUE") else eps  # with OUE as the second round, eps_1 cannot reach eps
    device = mechanism(name, k, eps=eps) if name in ONE_TIME else mechanism(name, k, eps_inf=2 * eps, eps_1=eps_1)
    m = device.with_fake_data(d)
    rng = np.random.default_rng(k)
    values = rng.integers(0, k, n)
    rows = device.simulate(values, rng)
    outputs = np.unpackbits(rows, axis=1, bitorder="little")[:, :k]
    if name == "SS":  # the channel's columns are the subsets in the order of itertools.combinations
        column = {bits.tobytes(): i for i, bits in enumerate(subsets(k, int(outputs[0].sum())))}
        index = np.array([column[bits.tobytes()] for bits in outputs])
    else:
        index = outputs @ (1 << np.arange(k))
    channel = m.channel()
    counts = np.bincount(index, minlength=channel.shape[1])
    term = reports_term(m, rows)
    for f in (np.full(k, 1 / k), rng.dirichlet(np.full(k, 0.2)), np.eye(k)[1]):
        check(term, channel, counts, f)


def subsets(k: int, size: int) -> npt.NDArray[np.uint8]:
    """Returns indicators of all subsets of this size, in the lexicographic order of the subsets' members."""
    every = np.array(list(product((1, 0), repeat=k)), np.uint8)
    return np.asarray(every[every.sum(axis=1) == size])
