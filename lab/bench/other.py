"""Values that nobody listed: the least shares that prefix levels and a list of candidates find.

Sources of prefix levels: Wang, Li and Jha 2019 (PEM); Bassily et al. 2017 (TreeHist).
"""

import math
from collections.abc import Callable

import msgspec
import numpy as np
from rich.table import Table
from scipy.optimize import brentq
from scipy.special import ndtri

from ldpstream.mechanisms import Mechanism, mechanism

PEOPLE, LEVELS, FALSE_ALARM, FOUND = 1_000_000, 8, 0.05, 0.9
EPS = (1.0, 2.0, 4.0)
BYTES, LETTERS = 256**3, 38**3  # continuations of a prefix by 3 bytes; by 3 of 26 letters, 10 digits, space and hyphen
LIST = 1000
STANDARD_ERRORS = 4.0
DOMAIN = 1000  # values of the mechanism; the variance of local hashing hardly depends on their number
SMALL = (100_000, 3, 38)  # people, levels and continuations of the simulation


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """The least shares that are found for one ε.

    Attributes:
        four: four standard errors of a level.
        any_bytes, letters: of prefix levels, if any 3 bytes can follow a prefix, and if 3 letters can.
        candidates: of a list of 1000 candidates, with all people.
    """

    eps: float
    four: float
    any_bytes: float
    letters: float
    candidates: float


class Simulated(msgspec.Struct, frozen=True, kw_only=True):
    """A small simulation of prefix levels: `found` is the share of the runs that found the text, `wrong` a wrong prefix."""

    eps: float
    runs: int
    share: float
    found: float
    wrong: float


def results() -> list[Result]:
    found = []
    for eps in EPS:
        m = mechanism("OLH", DOMAIN, eps=eps)
        found.append(
            Result(
                eps=eps, four=STANDARD_ERRORS * math.sqrt(m.variance(0.0, PEOPLE // LEVELS)),
                any_bytes=prefix_share(m, PEOPLE, LEVELS, BYTES), letters=prefix_share(m, PEOPLE, LEVELS, LETTERS),
                candidates=candidate_share(m, PEOPLE, LIST),
            )
        )  # fmt: skip
    return found


def prefix_share(m: Mechanism, people: int, levels: int, continuations: int) -> float:
    each = people / levels
    z, power = _z(levels * continuations), float(ndtri(FOUND ** (1 / levels)))
    share = z * math.sqrt(m.variance(0.0, 1) / each)
    for _ in range(50):  # f = z σ(0) + z' σ(f)
        share = z * math.sqrt(m.variance(0.0, 1) / each) + power * math.sqrt(m.variance(min(share, 1.0), 1) / each)
    return share


def candidate_share(m: Mechanism, people: int, candidates: int) -> float:
    """The smallest share of a candidate that is told from 0: f = c + z' σ(f), c = z σ(c)."""

    def error(f: float) -> float:
        return math.sqrt(m.variance(f, 1) / people)

    z, power = _z(candidates), float(ndtri(FOUND))
    if z * error(1.0) >= 1:
        return 1.0
    limit = float(brentq(lambda c: c - z * error(c), 0, 1))
    if limit + power * error(1.0) >= 1:
        return 1.0
    return float(brentq(lambda f: f - limit - power * error(f), 0, 1))


def simulate(runs: int, seed: int, progress: Callable[[str], None]) -> list[Simulated]:
    people, levels, continuations = SMALL
    found = []
    for number, eps in enumerate(EPS):
        progress(f"ε = {eps:g}")
        rng, m = np.random.default_rng([seed, number]), mechanism("OLH", DOMAIN, eps=eps)
        share = prefix_share(m, people, levels, continuations)
        limit = _z(levels * continuations) * math.sqrt(m.variance(0.0, 1) * levels / people)
        right, wrong = 0, 0
        for _ in range(runs):
            estimates = [_level(m, share, people // levels, rng) for _ in range(levels)]
            right += all(f[0] > limit for f in estimates)
            wrong += any((f[1:continuations] > limit).any() for f in estimates)
        found.append(Simulated(eps=eps, runs=runs, share=share, found=right / runs, wrong=wrong / runs))
    return found


def _level(m: Mechanism, share: float, people: int, rng: np.random.Generator) -> np.typing.NDArray[np.float64]:
    values = np.where(rng.random(people) < share, 0, DOMAIN - 1)
    return m.reading.inversion(m.tabulate(m.report(values, rng)))


def _z(tests: int) -> float:
    return float(-ndtri(FALSE_ALARM / tests))


def share_table(rows: list[Result]) -> Table:
    table = Table(title=f"Least share that is found in 9 of 10 cases, {PEOPLE:,} people")
    heads = ("ε", "4 standard errors of a level", "8 prefix levels, any bytes", "8 prefix levels, letters", "1,000 candidates")
    for column in heads:
        table.add_column(column, justify="right")
    for r in rows:
        table.add_row(f"{r.eps:g}", *(f"{100 * x:.2f} %" for x in (r.four, r.any_bytes, r.letters, r.candidates)))
    return table


def simulated_table(rows: list[Simulated]) -> Table:
    people, levels, continuations = SMALL
    table = Table(title=f"Simulation: {people:,} people, {levels} prefix levels, {continuations} continuations of a prefix")
    for column in ("ε", "runs", "share", "found", "wrong prefix found"):
        table.add_column(column, justify="right")
    for r in rows:
        shares = (f"{100 * x:.1f} %" for x in (r.share, r.found, r.wrong))
        table.add_row(f"{r.eps:g}", f"{r.runs:,}", *shares)
    return table
