"""The guarantees of devices that report only every w steps, by enumeration of all value sequences and outputs."""

import math
from collections.abc import Iterator
from itertools import product

import numpy as np
import pytest

from ldpstream.mechanisms import LONGITUDINAL, ONE_TIME, OneTime, mechanism
from ldpstream.mechanisms.arguments import FloatArray

from .reference import build

EPS = 0.7
SILENT = -1


def patterns_by_phase(n_steps: int, w: int, limit: int | None) -> Iterator[tuple[float, list[int]]]:
    """Yields each phase's probability and the steps at which a device of this phase reports."""
    for phase in range(w):
        yield 1 / w, list(range(phase, n_steps, w))[:limit]


def a_random_step_in_each_block(n_steps: int, w: int, limit: int | None) -> Iterator[tuple[float, list[int]]]:
    """The control: a device draws a new phase for every block of w steps, so two of its reports may be adjacent."""
    blocks = [range(first, first + w) for first in range(0, n_steps, w)]
    for chosen in product(*blocks):
        yield w ** -len(blocks), [step for step in chosen if step < n_steps][:limit]


def log_likelihoods(m: OneTime, n_steps: int, patterns: list[tuple[float, list[int]]]) -> FloatArray:
    """(k^T, outputs) ln Pr[output | value sequence]. An output has a report or silence at every step."""
    sequences = np.array(list(product(range(m.k), repeat=n_steps)))
    channel = m.channel()
    found: dict[tuple[int, ...], FloatArray] = {}
    for chance, steps in patterns:
        for reports in product(range(channel.shape[1]), repeat=len(steps)):
            output = [SILENT] * n_steps
            likelihood = np.full(len(sequences), chance)
            for step, report in zip(steps, reports, strict=True):
                output[step] = report
                likelihood = likelihood * channel[sequences[:, step], report]
            found[tuple(output)] = found.get(tuple(output), 0.0) + likelihood
    logs: FloatArray = np.log(np.array(list(found.values()))).T
    assert np.allclose(np.exp(logs).sum(axis=1), 1)
    return logs


def worst_losses(m: OneTime, n_steps: int, w: int, patterns: list[tuple[float, list[int]]]) -> tuple[float, float]:
    """Returns the loss between any two sequences, and between two sequences that differ only within w consecutive steps."""
    sequences = np.array(list(product(range(m.k), repeat=n_steps)))
    logs = log_likelihoods(m, n_steps, patterns)
    of_any = of_window = 0.0
    for mine, sequence in zip(logs, sequences, strict=True):
        losses = (mine - logs).max(axis=1)
        differs = sequence != sequences
        span = n_steps - differs[:, ::-1].argmax(axis=1) - differs.argmax(axis=1)  # from the first to the last difference
        of_any = max(of_any, losses.max())
        of_window = max(of_window, losses[span <= w].max(initial=0.0))
    return of_any, of_window


@pytest.mark.parametrize("limit", [None, 1, 2])
@pytest.mark.parametrize("w", [1, 2, 3])
@pytest.mark.parametrize("k", [2, 3])
def test_the_losses_are_exactly_those_stated(k: int, w: int, limit: int | None) -> None:
    m = ONE_TIME["GRR"](k=k, eps=EPS).spaced(w, limit)
    for n_steps in range(1, 7):
        of_any, of_window = worst_losses(m, n_steps, w, list(patterns_by_phase(n_steps, w, limit)))
        assert of_any == pytest.approx(m.eps_sequence(m.reports_in(n_steps)).value, abs=1e-9)
        assert of_window == pytest.approx(m.eps_window, abs=1e-9)
        assert of_any <= m.eps_lifetime + 1e-9


@pytest.mark.parametrize("w", [2, 3])
def test_a_new_phase_in_each_block_breaks_the_window_bound(w: int) -> None:
    """The control of the test above."""
    m = ONE_TIME["GRR"](k=2, eps=EPS).spaced(w)
    _, of_window = worst_losses(m, 2 * w, w, list(a_random_step_in_each_block(2 * w, w, None)))
    assert of_window > m.eps_window + 0.1


@pytest.mark.parametrize("name", ONE_TIME)
def test_every_one_time_mechanism_keeps_the_stated_losses(name: str) -> None:
    m = build(name, 3, 2 * EPS, EPS)
    assert isinstance(m, OneTime)
    spaced = m.spaced(2)
    of_any, of_window = worst_losses(spaced, 3, 2, list(patterns_by_phase(3, 2, None)))
    assert of_any == pytest.approx(2 * m.eps_1, rel=1e-9)
    assert of_window == pytest.approx(m.eps_1, rel=1e-9)
    assert (spaced.eps_window, spaced.eps_lifetime) == (m.eps_1, math.inf)


def test_spacing_changes_nothing_on_the_wire_or_in_the_tables() -> None:
    m = ONE_TIME["OUE"](k=5, eps=EPS)
    spaced = m.spaced(24, 365)
    assert (spaced.signature, spaced.report_dtype, spaced.p, spaced.q) == (m.signature, m.report_dtype, m.p, m.q)
    assert (m.every_steps, m.lifetime_reports) == (1, None)
    assert [spaced.reports_in(steps) for steps in (1, 24, 25, 48, 24 * 365, 24 * 366, 10**9)] == [1, 1, 2, 2, 365, 365, 365]
    assert spaced.with_fake_data(3).device is spaced
    assert spaced.with_fake_data(3).reports_in(48) == 2


def test_memoized_mechanisms_have_no_window_bound() -> None:
    for name in LONGITUDINAL:
        m = mechanism(name, 4, eps_inf=2.0, eps_1=1.0)
        assert (m.eps_window, m.eps_lifetime, m.reports_in(7)) == (None, math.inf, 7)


@pytest.mark.parametrize(("every", "limit"), [(0, None), (1.5, None), (2, 0)])
def test_bad_spacing_is_refused(every: int, limit: int | None) -> None:
    with pytest.raises(ValueError, match="every_steps" if limit is None else "lifetime_reports"):
        ONE_TIME["GRR"](k=3, eps=EPS).spaced(every, limit)
