"""The claims bound the joint loss of all surveys' reports: by enumeration of all histories and all outputs.

A person has one of two values at each of 8 ticks of half a second. A survey with steps of s seconds reports, at each step, the
value at one tick of the step. The tests try every choice of these ticks. The likelihood of an output is the product over the
surveys, and the loss is the maximum over outputs and pairs of histories.
"""

from collections.abc import Iterator, Sequence
from functools import cache
from itertools import product
from typing import Any

import numpy as np
import pytest

from ldpstream.device import claims
from ldpstream.device.claims import claim, touched_steps
from ldpstream.mechanisms import LONGITUDINAL, ONE_TIME, Longitudinal, Mechanism
from ldpstream.mechanisms.arguments import FloatArray
from ldpstream.surveys import Survey
from tests.mechanisms.guess_enumeration import likelihoods
from tests.mechanisms.reference import build
from tests.small_survey import small_survey

TICKS, TICKS_IN_SECOND = 8, 2
ROUNDING = 1e-9
GRR = {"mechanism": "GRR", "eps": 0.7}
OUE = {"mechanism": "OUE", "eps": 0.5}
ONCE = {"mechanism": "GRR", "eps": 0.4, "lifetime_reports": 1}
SPACED = {"mechanism": "SUE", "eps": 0.6, "every_steps": 2, "lifetime_reports": 2}
MEMO = {"mechanism": "L-GRR", "eps_inf": 1.0, "eps_1": 0.5}
BITS = {"mechanism": "L-OSUE", "eps_inf": 1.0, "eps_1": 0.5}
PAIRS = [
    ((GRR, 1), (OUE, 2)), ((GRR, 1), (ONCE, 1)), ((SPACED, 1), (SPACED, 1)), ((SPACED, 1), (GRR, 2)),
    ((MEMO, 1), (GRR, 2)), ((BITS, 2), (ONCE, 1)), ((MEMO, 2), (BITS, 2)),
]  # fmt: skip


def survey(level: dict[str, Any], step_seconds: int = 1, collection: str = "smp", n_attributes: int = 1) -> Survey:
    """A survey of attributes with two values; it ends with the last tick."""
    asked = ({"name": f"q{i}", "size": 2, "level": [{"name": "a"} | level]} for i in range(n_attributes))
    ends = TICKS // TICKS_IN_SECOND // step_seconds
    return small_survey(*asked, step_seconds=step_seconds, window_steps=10, collection=collection, ends=ends)


def log_likelihoods(m: Mechanism, t: int) -> FloatArray:
    """(2^t, outputs) ln Pr[output | values at t steps with reports]. The values of row i are the binary digits of i."""
    return np.asarray(np.log(list(likelihoods(m, t).values())))


@cache
def of_histories(mechanism: Mechanism, ticks: tuple[int, ...]) -> FloatArray:
    """(2, …, 2, outputs) ln Pr[output | history] of one survey that reports the values at these ticks."""
    table = log_likelihoods(mechanism, len(ticks))
    histories = np.indices((2,) * TICKS)
    sequence = sum((histories[tick] << (len(ticks) - 1 - i) for i, tick in enumerate(ticks)), np.zeros((2,) * TICKS, np.int64))
    return np.asarray(table[sequence])


def reported_ticks(asked: Survey) -> Iterator[tuple[int, ...]]:
    """Yields the reported ticks of a device that reports as often as it may: all phases, and all choices of a tick per step."""
    m, size = asked.mechanisms[0][0], asked.step_seconds * TICKS_IN_SECOND
    for phase in range(m.every_steps):
        steps = list(range(phase, TICKS // size, m.every_steps))[: m.lifetime_reports]
        yield from product(*(range(step * size, (step + 1) * size) for step in steps))


def joint_losses(surveys: Sequence[Survey], window_s: int) -> tuple[float, float]:
    """Returns the largest loss of all reports: between histories that differ within a window only, and between any two."""
    of_window = of_any = 0.0
    size = window_s * TICKS_IN_SECOND
    for chosen in product(*(reported_ticks(asked) for asked in surveys)):
        joint = np.zeros((2,) * TICKS + (1,))
        for asked, ticks in zip(surveys, chosen, strict=True):
            mine = of_histories(asked.mechanisms[0][0], ticks)
            joint = (joint[..., :, None] + mine[..., None, :]).reshape((2,) * TICKS + (-1,))
        for first in range(TICKS - size + 1):
            inside = tuple(range(first, first + size))
            of_window = max(of_window, float((joint.max(axis=inside) - joint.min(axis=inside)).max()))
        everything = tuple(range(TICKS))
        of_any = max(of_any, float((joint.max(axis=everything) - joint.min(axis=everything)).max()))
    return of_window, of_any


@pytest.mark.parametrize("pair", PAIRS, ids=str)
def test_the_sum_of_the_claims_bounds_the_joint_loss(pair: tuple[tuple[dict[str, Any], int], ...]) -> None:
    surveys, window_s = [survey(*asked) for asked in pair], 2
    of_window, of_any = joint_losses(surveys, window_s)
    made = [claim(asked, [0], window_s) for asked in surveys]
    per_window, for_ever = sum(c.per_window for c in made), sum(c.for_ever for c in made)
    assert of_window <= per_window + ROUNDING
    assert of_any <= for_ever + ROUNDING
    if not any("eps_inf" in level for level, _ in pair):
        assert (of_window, of_any) == pytest.approx((per_window, for_ever), abs=ROUNDING)


def test_a_forgotten_survey_or_step_breaks_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """The controls of the test above."""
    surveys = [survey(GRR, 1), survey(SPACED, 1)]
    of_window, of_any = joint_losses(surveys, 2)
    assert of_window > claim(surveys[0], [0], 2).per_window + 0.1
    assert of_any > claim(surveys[1], [0], 2).for_ever + 0.1
    monkeypatch.setattr(claims, "touched_steps", lambda window_s, step_seconds: touched_steps(window_s, step_seconds) - 1)
    assert of_window > sum(claim(asked, [0], 2).per_window for asked in surveys) + 0.1


@pytest.mark.parametrize(("window_s", "step_seconds"), list(product((1, 2, 3, 7, 60), (1, 2, 3, 5, 60, 61))))
def test_a_window_touches_at_most_the_stated_number_of_steps(window_s: int, step_seconds: int) -> None:
    """Counts the steps for windows that begin at every third of a second."""
    counts = {
        len({tick // (3 * step_seconds) for tick in range(first, first + 3 * window_s)}) for first in range(6 * step_seconds)
    }
    assert max(counts) == touched_steps(window_s, step_seconds)


# ---- one report


@pytest.mark.parametrize("name", [*ONE_TIME, *LONGITUDINAL])
def test_eps_per_report_is_the_loss_given_the_memos(name: str) -> None:
    """Enumerates all reports and all pairs of memos."""
    m = build(name, 3, 2.0, 1.0)
    if not isinstance(m, Longitudinal):
        channel = np.log(m.channel())
    elif name.endswith("UE"):
        zero, one = np.array([1 - m.q2, m.q2]), np.array([1 - m.p2, m.p2])
        rows = [np.log([one if bit else zero for bit in memo]) for memo in product((0, 1), repeat=3)]
        channel = np.array(
            [[sum(row[i][y] for i, y in enumerate(report)) for report in product((0, 1), repeat=3)] for row in rows]
        )
    else:
        symbols = m.table_shape[-1]
        channel = np.log(np.full((symbols, symbols), m.q2) + np.eye(symbols) * (m.p2 - m.q2))
    assert m.claims.eps_per_report == pytest.approx(float((channel.max(axis=0) - channel.min(axis=0)).max()))
    assert m.with_fake_data(2).device.claims.eps_per_report == m.claims.eps_per_report


# ---- several attributes


def attribute_losses(collection: str) -> tuple[float, float]:
    """Returns the loss of all reports of two attributes and two steps by enumeration, and the claim for ever."""
    asked = survey(GRR | {"lifetime_reports": 2}, 1, collection, 2)
    m = asked.mechanisms[0][0].device
    mine, fake = np.exp(log_likelihoods(m, 2)), np.exp(log_likelihoods(m, 2))[[0, 3]].mean(axis=0)
    if collection == "spl":
        table = np.einsum("ax,by->abxy", mine, mine)
    elif collection == "smp":  # the output shows the sampled attribute
        one, other = np.broadcast_arrays(mine[:, None, :], mine[None, :, :])
        table = np.concatenate((one, other), axis=2) / 2
    else:
        ones = np.ones(len(mine))
        table = (np.einsum("ax,b,y->abxy", mine, ones, fake) + np.einsum("a,x,by->abxy", ones, fake, mine)) / 2
    logs = np.log(table.reshape(16, -1))
    np.testing.assert_allclose(np.exp(logs).sum(axis=1), 1)
    return float((logs.max(axis=0) - logs.min(axis=0)).max()), claim(asked, [0, 0], None).for_ever


def test_the_attributes_of_a_survey_share_one_claim(monkeypatch: pytest.MonkeyPatch) -> None:
    for collection in ("smp", "spl"):
        loss, bound = attribute_losses(collection)
        assert loss == pytest.approx(bound)
        assert bound == pytest.approx(2 * 0.7)
    loss, bound = attribute_losses("rs+fd")
    assert 0.7 < loss <= bound + ROUNDING
    monkeypatch.setattr(claims, "together", lambda losses, adds_up: max(losses))
    loss, bound = attribute_losses("spl")
    assert loss > bound + 0.1  # control
