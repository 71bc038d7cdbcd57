"""Sources of the audited reports: the simulations' code, the devices' code, and mechanisms broken on purpose."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from lab.audit.events import events
from ldpstream.device.secure_random import SecureRandom
from ldpstream.mechanisms import Mechanism, Reports

DEVICE_SHARE = 20  # the devices' path has fewer reports by this factor, since a device is slow


@dataclass(frozen=True, slots=True)
class SampledReports:
    """Output of n devices that hold one value.

    Attributes:
        reports: t arrays of n rows of the mechanism's `report_dtype`; row i of each array is from device i.
        memos: the n devices' memos, which no server ever sees; None for a one-time mechanism, and for `fresh_memos`.
    """

    reports: list[Reports]
    memos: Reports | None = None


Sampler = Callable[[Mechanism, int, int, int, np.random.Generator], SampledReports]
"""(mechanism, number of one of `Events.audited`, n, t, rng) -> t reports of each of n devices that hold this input."""


@dataclass(frozen=True, slots=True)
class CodePath:
    """An audited path through the code.

    Attributes:
        n: number of simulated devices with each value, at least 2.
        values: two or more values, which the attack tries to distinguish. For a mechanism of sets it tries all of
            `Events.audited` instead.
    """

    name: str
    sample: Sampler
    n: int
    values: tuple[int, ...]


def code_paths(n: int, k: int) -> tuple[CodePath, ...]:
    return (
        CodePath("vectorised", vectorised, n, tuple(range(k))),
        CodePath("device", device, max(n // DEVICE_SHARE, 2), (0, k - 1)),
    )


def vectorised(m: Mechanism, value: int, n: int, t: int, rng: np.random.Generator) -> SampledReports:
    """Runs the simulations' code."""
    memos = m.memoize(np.full(n, events(m).audited()[value]), rng)
    return SampledReports([m.report(memos, rng) for _ in range(t)], memos if m.memoized else None)


def device(m: Mechanism, value: int, n: int, t: int, rng: np.random.Generator) -> SampledReports:
    """Runs the code of `ldpstream.device.Device`: `Mechanism.randomizer`, with the operating system's randomness and no seed.

    For a one-time mechanism t must be 1.
    """
    device, random, held = m.randomizer(m.parameters()), SecureRandom(), events(m).audited()[value]
    functions = [device.enroll(random) for _ in range(n)]
    memos = [device.memoize(device.memo_key(held, f), f, random) for f in functions]
    reports = [_rows(m, [device.report(memo, random) for memo in memos]) for _ in range(t)]
    return SampledReports(reports, _rows(m, memos) if m.memoized else None)


def _rows(m: Mechanism, single: list[bytes]) -> Reports:
    return np.frombuffer(b"".join(single), m.report_dtype.base).reshape(-1, *m.report_dtype.shape)


# ---- broken on purpose


def last_bit_in_clear(m: Mechanism, value: int, n: int, t: int, rng: np.random.Generator) -> SampledReports:
    """Sends the last bit without randomizing it."""
    observed = vectorised(m, value, n, t, rng)
    bit = 1 << (m.k - 1) % 8
    for rows in observed.reports:
        rows[:, -1] = rows[:, -1] | bit if value == m.k - 1 else rows[:, -1] & (255 - bit)
    return observed


def reports_of(other: Mechanism) -> Sampler:
    """A sampler that draws the reports from another mechanism, which has a larger ε."""
    return lambda m, value, n, t, rng: vectorised(other, value, n, t, rng)


def fresh_memos(m: Mechanism, value: int, n: int, t: int, rng: np.random.Generator) -> SampledReports:
    """Draws a new memo for every report."""
    values, enrolment = np.full(n, events(m).audited()[value]), m.enroll(n, rng)
    return SampledReports([m.report(m.memoize(values, rng, enrolment), rng) for _ in range(t)])


def one_member(size: int) -> Sampler:
    """A sampler that names only one member of the padded sets with `size` values: the last value, or for no values the last
    dummy."""

    def sample(m: Mechanism, value: int, n: int, t: int, rng: np.random.Generator) -> SampledReports:
        observed, code = vectorised(m, value, n, t, rng), events(m).audited()[value]
        if code.bit_count() == size:
            for rows in observed.reports:
                rows[events(m).supports(rows, np.full(n, code))] = code.bit_length() - 1 if size else m.k - 1
        return observed

    return sample
