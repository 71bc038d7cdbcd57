"""Count tables that no honest population makes, and the checks that every published number of them must pass.

The counting agents count any report that a device could have sent. Forged or faulty reports can therefore make every table that
`Mechanism.table` accepts: bit vectors without a one, all reports for one value, counts far below those of honest devices.
"""

import itertools
import random
import warnings
from collections import Counter
from collections.abc import Iterator
from functools import lru_cache

import msgspec
import numpy as np

from lab.drawn_tables import drawn_table
from ldpstream.estimators.bayes.value_likelihood import informative
from ldpstream.estimators.differences import difference_errors
from ldpstream.estimators.estimate import Group
from ldpstream.estimators.post_processing import NAMES as POST_NAMES
from ldpstream.estimators.post_processing import post_process
from ldpstream.mechanisms import LONGITUDINAL, NAMES, NUMERIC, ChannelMechanism, CountTable, Mechanism
from ldpstream.mechanisms.arguments import FloatArray, IntArray
from ldpstream.publishing.estimates.catalogue import is_numeric
from ldpstream.publishing.estimates.cohorts import conclude_cohort
from ldpstream.publishing.estimates.conclusions import conclude, pooled
from ldpstream.publishing.estimates.filtering import conclude_filtered, replay
from ldpstream.publishing.estimates.frequencies import Frequencies
from ldpstream.publishing.estimates.publication import Publication, edges_of
from ldpstream.surveys import Survey
from tests.small_survey import small_survey

STEPS = 3
LARGE = 20  # one of so many surveys is large
EPSILONS = (0.01, 0.1, 0.5, 1.0, 2.0, 4.0, 6.0)
DOMAINS = (2, 2, 3, 4, 5, 6, 8, 9, 12, 16, 20, 20, 30)
LARGE_DOMAINS = (50, 100, 200, 500)
KINDS = ("none", "all", "one", "one missing", "alternating", "half", "low", "random", "steep", "expected", "few")
SIZES = (1, 2, 3, 7, 30, 100, 1000, 10_000, 20_000, 10**6, 10**9, 2**40)


class OddTable(AssertionError):
    """A table for which a published number is wrong. The message names the seed that makes the table again."""


def check(seed: int, large: bool = False) -> int:
    """Makes a survey and its tables from a seed, and checks all that is published of them. Returns the number of tables.

    Args:
        seed: seed of the random numbers.
        large: true for 50 values and more.

    Raises:
        OddTable: if something raises an error, or a number is missing, not finite, or out of range.
    """
    source = random.Random(seed)
    survey = _survey(source, large)
    tables = [[_table(m, source, step) for m in survey.mechanisms[0]] for step in range(STEPS)]
    try:
        for complaint in _complaints(survey, tables):
            raise AssertionError(complaint)
    except Exception as error:
        said = f"{type(error).__name__}: {error}"
        made = [[(t.mechanism, t.n, t.counts.ravel()[:12].tolist()) for t in pane] for pane in tables]
        raise OddTable(f"seed {seed}, large={large}: {said}; {survey.attributes[0]}; {made}") from error
    return STEPS * len(survey.mechanisms[0])


def share(seed: int, tables: int) -> Counter[str]:
    """Checks this number of tables, from different seeds for each seed. One survey in twenty has 50 values or more."""
    done, numbers = 0, itertools.count(seed * tables)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        while done < tables:
            number = next(numbers)
            done += check(number, large=number % LARGE == 0)
    return Counter({"tables": done})


def _survey(source: random.Random, large: bool) -> Survey:
    """Returns a survey of one attribute with any mechanisms, one to three levels, and any order."""
    k = source.choice(LARGE_DOMAINS if large else DOMAINS)
    kind = source.choice(["values", "ordered", "ordered", "bins", "bins"])
    names = [source.choice((*NAMES, *(NUMERIC if kind == "bins" else ()))) for _ in range(source.choice([1, 1, 2, 3]))]
    eps = [source.choice(EPSILONS) for _ in names]
    return _parsed(k, kind, tuple(names), tuple(eps), source.random() < 0.1)


@lru_cache(maxsize=64)
def _parsed(k: int, kind: str, names: tuple[str, ...], eps: tuple[float, ...], fake: bool) -> Survey:
    levels = [
        {"name": f"l{i}", "mechanism": name, **({"eps_1": e, "eps_inf": 2 * e} if name in LONGITUDINAL else {"eps": e})}
        for i, (name, e) in enumerate(zip(names, eps, strict=True))
    ]
    domain = {
        "values": {"size": k},
        "ordered": {"size": k, "ordered": True},
        "bins": {"bins": np.cumsum([0.0, *np.geomspace(1, 50, k)]).round(6).tolist()},
    }[kind]
    attributes = [{"name": "a", "level": levels, **domain}]
    attributes += [{"name": "b", "size": 2, "level": [{"name": "l", "mechanism": "GRR", "eps": 1.0}]}] if fake else []
    cohort = {"name": "c", "values": ["x", "y"], "least": 1}
    return small_survey(*attributes, name="odd", collection="rs+fd" if fake else "smp", cohort=cohort)


def _table(m: Mechanism, source: random.Random, step: int) -> CountTable:
    """Returns a table of the mechanism: of forged reports, of honest and forged ones, or empty."""
    rng = np.random.default_rng(source.getrandbits(32))
    n = source.choice(SIZES)
    drawn = source.random()
    if drawn < 0.05 and step:
        return m.empty_table()
    if drawn < 0.35:
        honest = drawn_table(
            m, rng.multinomial(min(n, 20_000), rng.dirichlet(np.full(m.k, source.choice([0.05, 1.0, 50.0])))), rng
        )
        forged = m.table(count := max(1, honest.n // source.choice([3, 9, 50])), _counts(m, count, source, rng))
        return honest + forged
    return m.table(n, _counts(m, n, source, rng))


def _counts(m: Mechanism, n: int, source: random.Random, rng: np.random.Generator) -> IntArray:
    """Returns counts of n reports that the mechanism's table can have."""
    size = int(np.prod(m.table_shape))
    kind = source.choice(KINDS)
    part = np.zeros(size)  # counts of the n reports, before their sum is right
    if kind == "all":
        part[:] = 1
    elif kind == "one":
        part[rng.integers(size)] = 1
    elif kind == "one missing":
        part[:] = 1
        part[rng.integers(size)] = 0
    elif kind == "alternating":
        part[rng.integers(2) :: 2] = 1
    elif kind == "half":
        part[: max(1, size // 2)] = 1
    elif kind == "low":
        part[:] = m.q / 2 if m.q == m.q else 0.1
        part[rng.integers(size)] = 1
    elif kind == "random":
        part = rng.random(size)
    elif kind == "steep":
        part = rng.random(size) ** 20
    elif kind == "expected":
        part[:] = (m.q + (m.p - m.q) / m.k) if m.q == m.q else 0.1
    elif kind == "few":
        part[rng.random(size) < 0.1] = rng.random()
    if m.marks is None:
        return np.minimum((part * n).astype(np.int64), n).reshape(m.table_shape)
    return _with_sum(part, n, m.marks).reshape(m.table_shape)


def _with_sum(part: FloatArray, n: int, marks: int) -> IntArray:
    """Returns counts with the sum n · marks. Each is at most n; within this limit, they are in proportion to the parts."""
    order = np.argsort(-part, kind="stable")
    weights = part[order] + 1e-9
    counts = np.minimum((weights / weights.sum() * n * marks).astype(np.int64), n)
    counts -= np.maximum(np.cumsum(counts) - n * marks, 0).clip(0, counts)  # rounding
    room = np.cumsum(n - counts)
    more = np.diff(np.minimum(room, n * marks - int(counts.sum())), prepend=0)
    result: IntArray = np.empty_like(counts)
    result[order] = counts + more
    return result


def _complaints(survey: Survey, tables: list[list[CountTable]]) -> Iterator[str]:
    """Yields what is wrong with the publications of these tables, one table for each step and level."""
    mechanisms, asked, state = survey.mechanisms[0], survey.attributes[0], None
    before: Publication | None = None
    for step in range(STEPS):
        first = max(0, step - 1)
        made = [
            conclude(survey, 0, step, "step", tables[step : step + 1], True, tables[step - 1] if step else None),
            conclude(survey, 0, step, "window", tables[first : step + 1], True),
        ]
        curve, after = conclude_filtered(mechanisms, tables[step], made, state, True, edges_of(asked, mechanisms, "filtered"))
        if replay(mechanisms, made[0], state) != after:
            yield f"step {step}: the filter continues differently after a restore"
        state = after
        cohorts = [conclude_cohort(survey, 0, made[0], tables[step : step + 1])] if step == 0 else []
        for p, panes in zip([*made, curve, *cohorts], [tables[step:], tables[first:], None, tables[step:]], strict=False):
            groups = [] if panes is None else pooled(mechanisms, panes[: step + 1 - (first if p.span == "window" else step)])[0]
            for complaint in _wrong(survey, p, _informed(groups) if groups else {}):
                yield f"step {step}, {p.span}, cohort {p.cohort}: {complaint}"
        mi = made[0].estimators["mi"].estimate()
        if made[0].reports and not np.isnan(mi.frequencies).any():
            for post in POST_NAMES[: None if made[0].estimators["mi"].interval_withheld is None else -2]:
                done = post_process(mi.frequencies, post, variance=np.maximum(mi.standard_errors, 1e-150) ** 2)
                if not np.isfinite(done).all():
                    yield f"step {step}: {post} is not finite"
        if before is not None:
            one, two = before.estimators["mi"].estimate(), made[0].estimators["mi"].estimate()
            if np.isinf(difference_errors(one, two, None if is_numeric(mechanisms) else mechanisms[0], 1.0)).any():
                yield f"step {step}: an infinite error of a difference"
        before = made[0]


def _informed(groups: list[Group]) -> dict[str, bool]:
    """Returns for each estimator whether these counts carry information for it; see `Estimate`."""
    told = [(m, table) for m, table in groups if table.n and m.p != m.q]
    supported = any(isinstance(m, ChannelMechanism) or m.support(table).any() for m, table in told)
    own = any(True for _ in informative(groups))
    return {"eb": own, "mi": bool(told), "ibu": supported, "mle": supported, "ems": supported}


def _wrong(survey: Survey, p: Publication, informed: dict[str, bool]) -> Iterator[str]:
    """Yields what is wrong with a publication."""
    if p.diagnostics.failed:
        yield f"{', '.join(p.diagnostics.failed)} failed"
    raw = msgspec.json.encode(p)
    if msgspec.json.decode(raw, type=Publication) != p:
        yield "JSON changes the publication"
    for name, found in p.estimators.items():
        missing = [x is None for x in found.frequencies]
        if any(missing) != all(missing):
            yield f"{name}: some frequencies are missing"
        elif name in informed and all(missing) == informed[name]:
            yield f"{name}: frequencies missing is {all(missing)}, information is {informed[name]}"
        elif not any(missing):
            yield from (f"{name}: {complaint}" for complaint in _wrong_shares(name, found))
    if p.numbers:
        edges = edges_of(survey.attributes[0], survey.mechanisms[0], p.span)
        assert edges is not None
        if set(p.numbers) != {"mean", "p50", "p90", "p99"}:
            yield f"numbers {sorted(p.numbers)}"
        for name, x in p.numbers.items():
            if not edges[0] <= x.value <= edges[-1]:
                yield f"{name} is {x}, beyond the edges"
            if x.low is not None and x.high is not None and not edges[0] <= x.low <= x.value <= x.high <= edges[-1]:
                yield f"{name} is {x}"
    elif p.span != "filtered" and informed["eb"] and survey.attributes[0].edges is not None:
        yield "numbers are missing"


def _wrong_shares(name: str, found: Frequencies) -> Iterator[str]:
    f = found.estimate().frequencies
    if not np.isfinite(f).all():
        yield "a frequency is not finite"
    if name in ("eb", "ems", "ibu", "mle") and not (abs(f.sum() - 1) < 1e-6 and f.min() >= 0):
        yield f"the frequencies sum to {f.sum()}, the least is {f.min()}"
    errors = found.estimate().standard_errors
    if np.isinf(errors).any() or (errors < 0).any():
        yield "a standard error is negative or infinite"
    if name in ("eb", "mi", "filter") and found.interval_withheld is None and np.isnan(errors).any():
        yield "a standard error is missing"
    if found.low is not None and found.high is not None:
        if None in found.low or None in found.high:
            yield "an end of an interval is missing"
            return
        low, high = found.estimate().interval(0.95)
        if not ((low >= 0) & (low <= f + 1e-12) & (f <= high + 1e-12) & (high <= 1)).all():
            yield "an interval does not hold its frequency, or leaves [0, 1]"
