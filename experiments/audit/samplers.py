"""Where the audited reports come from: the code as simulations and as devices run it, and mechanisms broken on purpose.

A sampler draws what n devices that hold one and the same value would send in t reports. The audit knows nothing else of it.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from mechanisms import Longitudinal, Mechanism, Reports
from producers.device import secure_random
from producers.device.secure_random import SecureRandom

DEVICE_SHARE = 20  # a device draws alone, a thousand times slower than a simulation


@dataclass(frozen=True, slots=True)
class Observed:
    """What n devices with one value showed.

    Attributes:
        reports: t arrays of n rows of the mechanism's `report_dtype`; row i of each is device i's.
        memos: the n memos behind them, which no server ever sees; None for a one-time mechanism.
    """

    reports: list[Reports]
    memos: Reports | None = None


Sampler = Callable[[Mechanism, int, int, int, np.random.Generator], Observed]
"""(mechanism, value, n, t, rng) -> what n devices with the value show in t reports."""


@dataclass(frozen=True, slots=True)
class CodePath:
    """A way through the code that is audited.

    Attributes:
        name: shown in the tables.
        sample: draws from it.
        n: reports of each value, at least 2.
        values: two or more, to be told apart.
    """

    name: str
    sample: Sampler
    n: int
    values: tuple[int, ...]


def code_paths(n: int, k: int) -> tuple[CodePath, ...]:
    """Simulations, n reports of each of the k values; and devices, fewer of the first and the last value."""
    return (
        CodePath("vectorised", vectorised, n, tuple(range(k))),
        CodePath("device", device, max(n // DEVICE_SHARE, 2), (0, k - 1)),
    )


def vectorised(m: Mechanism, value: int, n: int, t: int, rng: np.random.Generator) -> Observed:
    """What simulations run: `Mechanism.report`, `Longitudinal.memoize`."""
    values = np.full(n, value)
    if not isinstance(m, Longitudinal):
        return Observed([m.report(values, rng) for _ in range(t)])
    memos = m.memoize(values, rng)
    return Observed([m.report(memos, rng) for _ in range(t)], memos)


def device(m: Mechanism, value: int, n: int, t: int, rng: np.random.Generator) -> Observed:
    """What `producers.device.Device` runs: its `secure_random`, with the operating system's randomness; no seed."""
    random = SecureRandom()
    if not isinstance(m, Longitudinal):
        return Observed([_rows([secure_random.report_once(m, value, random) for _ in range(n)]) for _ in range(t)])
    functions = [secure_random.enroll(m, random) for _ in range(n)]
    memos = [secure_random.memoize(m, secure_random.memo_key(m, value, f), f, random) for f in functions]
    reports = [_rows([secure_random.report_memo(m, memo, random) for memo in memos]) for _ in range(t)]
    return Observed(reports, _rows(memos))


def _rows(single: list[Reports]) -> Reports:
    return np.concatenate(single)


# ---- broken on purpose


def last_bit_in_clear(m: Mechanism, value: int, n: int, t: int, rng: np.random.Generator) -> Observed:
    """The last bit is never randomized."""
    observed = vectorised(m, value, n, t, rng)
    bit = 1 << (m.k - 1) % 8
    for rows in observed.reports:
        rows[:, -1] = rows[:, -1] | bit if value == m.k - 1 else rows[:, -1] & (255 - bit)
    return observed


def reports_of(other: Mechanism) -> Sampler:
    """Reports of another mechanism, with the probabilities of a larger ε."""
    return lambda m, value, n, t, rng: vectorised(other, value, n, t, rng)


def fresh_memos(m: Mechanism, value: int, n: int, t: int, rng: np.random.Generator) -> Observed:
    """The memo is not kept but drawn again for every report."""
    assert isinstance(m, Longitudinal)
    values, enrolment = np.full(n, value), m.enroll(n, rng)
    return Observed([m.report(m.memoize(values, rng, enrolment), rng) for _ in range(t)])
