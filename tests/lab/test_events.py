"""Compares the chances that `lab.audit.events` states with the channels of the mechanisms, over all reports."""

import numpy as np
import numpy.typing as npt
import pytest

from lab.audit.events import Events, events
from ldpstream.mechanisms import NUMERIC, ONE_TIME, SETS, Mechanism, mechanism
from ldpstream.mechanisms.arguments import FloatArray
from ldpstream.mechanisms.registry import registered
from tests.mechanisms import reference

K = 4
SINGLE = [name for name in registered() if name not in SETS]  # test_padded_sampling.py has the mechanisms of sets


def build(name: str) -> Mechanism:
    if name in ONE_TIME or name in NUMERIC:
        return mechanism(name, K, eps=1.0)
    return mechanism(name, K, eps_inf=2.0, eps_1=1.0)


def supported(m: Mechanism) -> npt.NDArray[np.bool_]:
    """(k, outputs) true where a report supports a value."""
    rows = reference.all_reports(m)[0]
    return np.array([events(m).supports(rows, np.full(len(rows), v)) for v in range(K)])


def by_value(m: Mechanism) -> FloatArray:
    """(k, k) Pr[a report supports v | the value is u], at [u, v]."""
    return np.asarray(m.channel() @ supported(m).T)


@pytest.mark.parametrize("name", SINGLE)
def test_supports_have_the_stated_chances(name: str) -> None:
    m = build(name)
    chances = by_value(m)
    rows = reference.all_reports(m)[0]
    if m.pure:  # the default is the same
        assert all(np.array_equal(Events(m).supports(rows, np.full(len(rows), v)), supported(m)[v]) for v in range(K))
    own, uniform = events(m).support_chances()
    np.testing.assert_allclose(own, chances.diagonal(), rtol=1e-12)
    np.testing.assert_allclose(uniform, chances.mean(axis=0), rtol=1e-12)
    assert events(m).contrast == pytest.approx((chances.diagonal()[:, None] - chances).max(), rel=1e-9)
    if m.pure:
        np.testing.assert_allclose(chances, np.where(np.eye(K, dtype=bool), m.p, m.q), rtol=1e-12)


@pytest.mark.parametrize("name", [*ONE_TIME, *NUMERIC])
def test_two_reports_of_a_one_time_mechanism_are_independent(name: str) -> None:
    m = build(name)
    own, uniform = events(m).support_chances(2)
    np.testing.assert_allclose(own, by_value(m).diagonal() ** 2, rtol=1e-12)
    np.testing.assert_allclose(uniform, (by_value(m) ** 2).mean(axis=0), rtol=1e-12)


@pytest.mark.parametrize("name", SINGLE)
def test_pairs_of_values_and_equal_reports_have_the_stated_chances(name: str) -> None:
    m = build(name)
    yes, channel = supported(m), m.channel()
    if (pairs := events(m).pair_chances()) is not None:
        np.testing.assert_allclose(pairs, [channel[0] @ (yes[0] & yes[1]), channel[0] @ (yes[1] & yes[2])], rtol=1e-12)
    if (equal := events(m).equal_chances()) is not None:
        functions = m.n_enrolments  # a device with memos keeps its function
        assert equal[1] == pytest.approx(functions * (channel[0] ** 2).sum(), rel=1e-12)
        assert (equal[0] > equal[1] * (1 + 1e-9)) == m.memoized


@pytest.mark.parametrize("name", SINGLE)
def test_uniform_parts_are_uniform(name: str) -> None:
    """In each part of `uniform_parts`, all numbers have the same probability, whatever the value."""
    m = build(name)
    rows, channel = reference.all_reports(m)[0], m.channel()
    for value in range(K):
        alone = [events(m).uniform_parts(rows[i : i + 1], np.array([value])) for i in range(len(rows))]
        for part, (_, _, n) in enumerate(events(m).uniform_parts(rows, np.full(len(rows), value))):
            weights = np.zeros(n)
            for i, parts in enumerate(alone):
                weights[parts[part][1]] += channel[value, i]
            np.testing.assert_allclose(weights, weights.mean(), rtol=1e-12)
