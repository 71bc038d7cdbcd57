"""Compares a memoized mechanism with a one-time mechanism whose devices report every w steps, at equal promises."""

import math
from collections.abc import Sequence

import msgspec
import numpy as np

from ldpstream.mechanisms import Mechanism, mechanism
from ldpstream.mechanisms.arguments import MAX_EPS, MIN_EPS, FloatArray
from ldpstream.mechanisms.registry import answering
from ldpstream.mechanisms.wording import plural

EVERY_STEPS = 24  # w, and the length of the window that the errors are for


class EqualPromise(msgspec.Struct, frozen=True, kw_only=True):
    """The errors of both kinds of reports at one promise: root mean squared errors of the raw matrix inversion.

    Attributes:
        loss: the promised loss, in nats.
        mechanism: the one-time mechanism with the smallest variance.
        eps: ε of the one-time mechanism, the loss of each report, in nats.
        memoized_step, memoized_window: errors for a step and for a window of w steps, if people report unchanged values at
            every step.
        spaced_step, spaced_window: errors of the one-time mechanism: a step counts one device in w, a window each device once.
    """

    promise: str
    loss: float
    mechanism: str
    eps: float
    memoized_step: float
    memoized_window: float
    spaced_step: float
    spaced_window: float


def equal_promises(memoized: Mechanism, n: int, horizon: int, shares: Sequence[FloatArray]) -> list[EqualPromise]:
    """Compares a memoized mechanism with one-time mechanisms whose devices report every `EVERY_STEPS` steps.

    Args:
        shares: distributions, each the (k,) true shares of people with each value. Squared errors are means over these.
    """
    reports = -(-horizon // EVERY_STEPS)  # `Mechanism.reports_in`
    promises = [
        ("one report", memoized.eps_1, memoized.eps_1),
        (f"unchanged, {plural(horizon, 'step')}", loss := memoized.eps_t(horizon), loss / reports),
        (f"any values, {plural(horizon, 'step')}", loss := memoized.eps_sequence(horizon).value, loss / reports),
    ]
    rows = []
    for promise, loss, eps in promises:
        if not MIN_EPS <= eps <= MAX_EPS:
            continue
        k, names = memoized.k - (memoized.choices or 0), answering(once=True, sets=memoized.choices is not None)
        spaced = [mechanism(name, k, eps=eps, choices=memoized.choices) for name in names]
        best = min(spaced, key=lambda m: _error(m, n, shares))
        rows.append(EqualPromise(
            promise=promise, loss=loss, mechanism=best.name, eps=eps,
            memoized_step=_error(memoized, n, shares), memoized_window=_error(memoized, n, shares, EVERY_STEPS),
            spaced_step=_error(best, max(1, n // EVERY_STEPS), shares), spaced_window=_error(best, n, shares),
        ))  # fmt: skip
    return rows


def _error(m: Mechanism, n: int, shares: Sequence[FloatArray], reports: int = 1) -> float:
    most = m.choices or 1
    return most * math.sqrt(np.mean([m.inversion_variances(f / most, n, reports) for f in shares]))
