"""Detection of jumps: the filter's mean number of steps to a false alarm, and the jumps that it finds within some steps.

A jump's size is in standard errors of an observation.
"""

from collections.abc import Callable

import numpy as np
from rich.console import Console
from rich.table import Table

from lab.bench.many_filters import ManyFilters
from ldpstream.estimators.filter.changes import RUN_LENGTH, detectable
from ldpstream.estimators.filter.step_noise import step_noise
from ldpstream.mechanisms import ONE_TIME, Mechanism, mechanism
from ldpstream.mechanisms.arguments import FloatArray

SPREAD = 0.01  # standard deviation of an observation
WAITS = (1, 3, 5, 10, 30)  # steps after a jump


def false_alarms(k: int, drifts: Callable[[int], FloatArray], filters: int, steps: int) -> int:
    """Counts the alarms of filters of k normal values.

    `drifts` gives the standard deviations of a step's changes, in standard deviations of an observation.
    """
    rng, many, truth = np.random.default_rng([2, k]), ManyFilters(filters, k, RUN_LENGTH), np.zeros((filters, k))
    for _ in range(steps):
        truth += SPREAD * drifts(k) * rng.normal(size=truth.shape)
        many.step((truth + SPREAD * rng.normal(size=truth.shape)).ravel(), np.full(truth.size, SPREAD**2))
    return int(many.alarms.sum())


def mechanism_alarms(m: Mechanism, people: int, filters: int, steps: int, missing: float) -> int:
    rng, many = np.random.default_rng([22, m.k]), ManyFilters(filters, m.k, RUN_LENGTH)
    shares = 1 / np.arange(1, m.k + 1)
    shares /= shares.sum()
    noise = step_noise([(m, people)], shares)
    fresh, lasting, skewness = (np.tile(each, filters) for each in (noise.fresh, noise.lasting, noise.skewness))
    groups = rng.multinomial(people, shares, size=(m.every_steps, filters))
    memo_p, memo_q, p2, q2 = m.device.rounds()
    memos = rng.binomial(groups, memo_p) + rng.binomial(people - groups, memo_q)  # supported by the people's memos
    for t in range(steps):
        if rng.random() < missing:
            many.skip()
            continue
        own = groups[t % m.every_steps]
        if m.name == "GRR":
            support = np.sum([rng.multinomial(own[:, v], row) for v, row in enumerate(m.channel())], axis=0)
        else:
            support = rng.binomial(memos[t % m.every_steps], p2) + rng.binomial(people - memos[t % m.every_steps], q2)
        many.step(((support / people - m.q) / (m.p - m.q)).ravel(), fresh, lasting, skewness)
    return int(many.alarms.sum())


def found_within(size: float, k: int = 10, filters: int = 100) -> list[float]:
    rng, many = np.random.default_rng([4, int(10 * size)]), ManyFilters(filters, k, RUN_LENGTH)
    truth = np.full((filters, k), 0.1)
    found = []
    for t in range(1, 101 + max(WAITS)):
        if t == 101:
            truth[:, 0] += SPREAD * size
        many.step((truth + SPREAD * rng.normal(size=truth.shape)).ravel(), np.full(truth.size, SPREAD**2))
        if t - 100 in WAITS:
            found.append(float((many.latest > 100).mean()))
    return found


STREAMS: dict[str, Callable[[int], FloatArray]] = {
    "constant": np.zeros,
    "all drift a little (0.1)": lambda k: np.full(k, 0.1),
    "one in ten drifts strongly (1.0)": lambda k: np.where(np.arange(k) < max(1, k // 10), 1.0, 0.0),
}


REAL: dict[str, tuple[Mechanism, int, float]] = {
    "GRR": (mechanism("GRR", k=2, eps=1.0), 2000, 0.0),
    "GRR, one step in 25": (ONE_TIME["GRR"](k=6, eps=1.0).spaced(25), 2400, 0.0),
    "OUE": (mechanism("OUE", k=10, eps=1.0), 2400, 0.0),
    "OUE, few people": (mechanism("OUE", k=10, eps=1.0), 200, 0.0),
    "OUE, one step in 25": (ONE_TIME["OUE"](k=10, eps=4.0).spaced(25), 2400, 0.0),
    "L-OSUE, memoized": (mechanism("L-OSUE", k=10, eps_inf=2.0, eps_1=1.0), 2400, 0.0),
    "L-OSUE, 30 % of the steps missing": (mechanism("L-OSUE", k=10, eps_inf=3.0, eps_1=1.5), 10_000, 0.3),
}  # mechanism, people who report at a step, part of the steps without reports


def main() -> None:
    console = Console(width=120)
    lengths = Table("k", "stream", "alarms", "run length", title=f"False alarms of the filter; stated {RUN_LENGTH:g} steps")
    for k, filters in ((2, 1000), (10, 400), (100, 40)):
        for name, drifts in STREAMS.items():
            alarms = false_alarms(k, drifts, filters, 1000)
            lengths.add_row(str(k), name, str(alarms), f"{filters * 1000 / max(alarms, 1):.0f}")
    for name, (m, people, missing) in REAL.items():
        alarms = mechanism_alarms(m, people, 300, 1000, missing)
        lengths.add_row(str(m.k), name, str(alarms), f"{300_000 / max(alarms, 1):.0f}")
    console.print(lengths)
    waits = [f"{wait} steps" for wait in WAITS]
    parts = Table("k", "size", *waits, title=f"Jumps found within some steps; stated {RUN_LENGTH:g} steps")
    for size in (1.0, 1.5, 2.0, 3.0, 5.0):
        parts.add_row("10", f"{size:g}", *(f"{100 * part:.0f} %" for part in found_within(size)))
    for k, filters in ((2, 400), (10, 300), (100, 60), (1000, 20)):  # the size that the page calls detectable
        size = detectable(k, 1.0)
        parts.add_row(str(k), f"{size:.2f}", *(f"{100 * part:.0f} %" for part in found_within(size, k, filters)))
    console.print(parts)


if __name__ == "__main__":
    main()
