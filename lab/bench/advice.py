"""Compares the error of the advice with that of every fixed choice, on the papers' data sets.

The advice is the mechanism of `advise`, which knows only k, the number of people and the losses, and the default estimate.
"""

import math
import zlib
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import msgspec
import numpy as np

from lab import datasets
from lab.bench.methods import DEFAULT, estimates, powered_estimates
from lab.drawn_tables import drawn_table
from lab.error_measures import mse
from lab.processes import worker_pool
from ldpstream.mechanisms.arguments import FloatArray
from ldpstream.planning.advise import best, equal_shares, possible, variances
from ldpstream.planning.question import Question

EPSILONS = (0.5, 1.0, 2.0, 4.0)
MOST_PEOPLE = 100_000  # a larger data set is reduced to this number of random people
KINDS = ("one-time", "memoized")
PAPERS = {
    "one-time": (
        "GRR mi", "GRR mi norm-mul", "GRR ibu", "SUE mi norm-mul", "SUE ibu", "OUE mi", "OUE mi norm-mul", "OUE ibu",
        "OUE mi norm-sub", "OUE mi power-ns", "OLH mi norm-mul", "OLH ibu", "OLH mi norm-sub", "SS mi norm-mul", "SS ibu",
    ),
    "memoized": (
        "L-GRR mi", "L-GRR mi norm-mul", "L-GRR ibu", "L-SUE mi norm-mul", "L-SUE ibu", "L-OSUE mi", "L-OSUE mi norm-mul",
        "L-OSUE ibu", "L-OSUE mi norm-sub", "L-OLH mi norm-mul", "L-OLH ibu", "L-OLH mi norm-sub",
    ),
}  # fmt: skip
"""Choices that the papers make or recommend. The papers' matrix inversion (MI) clips at zero and normalises, like norm-mul."""


class Case(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    counts: list[int]
    real: bool


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """A case and a kind of reports: one-time with loss eps, or memoized with eps_1 = eps and eps_inf = 2 eps."""

    case: Case
    kind: str
    eps: float

    def question(self, n: int) -> Question:
        if self.kind == "one-time":
            return Question(k=len(self.case.counts), people=n, eps=self.eps)
        return Question(k=len(self.case.counts), people=n, eps_inf=2 * self.eps, eps_1=self.eps)


class Compared(msgspec.Struct, frozen=True, kw_only=True):
    """Mean squared errors in one setting, by combination: mechanism, estimator and post-processing."""

    case: str
    kind: str
    eps: float
    k: int
    n: int
    advice: str
    mse: dict[str, float]


def cases(folder: Path | None, names: Sequence[str] = datasets.NAMES) -> list[Case]:
    """The attributes of the data sets, without those whose values are all equally frequent.

    The default estimate finds equal shares almost exactly, so such attributes would dominate every mean of ratios.
    """
    found = []
    for name in names:
        data = datasets.load(name, folder)
        steps = len(set(data.sizes)) == 1
        for i, k in enumerate(data.sizes[:1] if steps else data.sizes):
            values = data.values[:, i]
            counts = np.bincount(values[values != datasets.ABSENT], minlength=k)
            if counts.min() == counts.max():
                continue
            if counts.sum() > MOST_PEOPLE:
                counts = np.random.default_rng(i).multivariate_hypergeometric(counts, MOST_PEOPLE, method="marginals")
            found.append(Case(name=name if steps else f"{name} {i + 1}", counts=counts.tolist(), real=data.real))
    return found


def settings(asked: Sequence[Case], epsilons: Sequence[float] = EPSILONS) -> list[Setting]:
    return [Setting(case=case, kind=kind, eps=eps) for case in asked for kind in KINDS for eps in epsilons]


def compare(
    asked: Sequence[Setting],
    repeats: int,
    seed: int,
    seen: Callable[[int, int, str], None] = lambda *_: None,
) -> list[Compared]:
    done: list[Compared] = []
    with worker_pool(None, tasks=0) as spread:
        for row in spread(partial(compared, repeats=repeats, seed=seed), asked):
            done.append(row)
            seen(len(done), len(asked), row.case)
    return done


def compared(setting: Setting, repeats: int, seed: int) -> Compared:
    counts = np.array(setting.case.counts)
    question = setting.question(int(counts.sum()))
    built, _ = possible(question)
    advised = best(variances(question, built, equal_shares(question)))
    errors: dict[str, list[float]] = {}
    for m in built:
        rng = np.random.default_rng([seed, zlib.crc32(msgspec.json.encode(setting)), zlib.crc32(m.name.encode())])
        for _ in range(repeats):
            table = drawn_table(m, counts, rng)
            for name, shares in (*estimates(m, table), *powered_estimates(m, table)):
                known = bool(np.isfinite(shares).all())  # the likelihood of bits gives no estimate if all bits are 0
                found = mse(counts / question.people, shares) if known else math.inf
                errors.setdefault(f"{m.name} {name}", []).append(found)
    return Compared(
        case=setting.case.name + ("" if setting.case.real else " (generated)"), kind=setting.kind, eps=setting.eps,
        k=question.k, n=question.people, advice=f"{advised.name} {DEFAULT}",
        mse={name: float(np.mean(runs)) for name, runs in errors.items()},
    )  # fmt: skip


# ---- gains


class Gain(msgspec.Struct, frozen=True, kw_only=True):
    """Comparison of the advice with one choice, over many settings.

    Attributes:
        gain: geometric mean of the choice's error divided by the advice's error.
        better: share of settings in which the choice has the smaller error.
        least, where: the smallest ratio of the choice's error to the advice's error, and the case and ε where this ratio
            occurs.
    """

    choice: str
    gain: float
    better: float
    least: float
    where: str


def gain(rows: Sequence[Compared], choice: str, of: Callable[[Compared], str] | None = None) -> Gain:
    ratios = np.array([row.mse[choice if of is None else of(row)] / row.mse[row.advice] for row in rows])
    worst = int(np.argmin(ratios))
    return Gain(
        choice=choice, gain=math.exp(float(np.mean(np.log(ratios)))), better=float(np.mean(ratios < 1)),
        least=float(ratios[worst]), where=f"{rows[worst].case}, {rows[worst].eps:g}",
    )  # fmt: skip


def best_fixed(rows: Sequence[Compared]) -> str:
    logs: dict[str, FloatArray] = {name: np.log([row.mse[name] for row in rows]) for name in rows[0].mse}
    return min(logs, key=lambda name: float(logs[name].mean()))


def gains(rows: Sequence[Compared], kind: str) -> list[Gain]:
    rows = [row for row in rows if row.kind == kind]
    fixed = [gain(rows, choice) for choice in PAPERS[kind]]
    hindsight = gain(rows, best_fixed(rows))
    oracle = gain(rows, "best of each setting", lambda row: min(row.mse, key=lambda name: row.mse[name]))
    return [*fixed, msgspec.structs.replace(hindsight, choice=f"{hindsight.choice} †"), oracle]
