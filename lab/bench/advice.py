"""Compares the error of advice with every fixed choice, on the papers' data sets.

The adviser gets a random 5 % of the people, or no sample; the other 95 % report.
"""

import math
import zlib
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import msgspec
import numpy as np

from lab import datasets
from ldpstream.advice.advise import advise, worse
from ldpstream.advice.question import Question
from ldpstream.advice.runs import simulate
from ldpstream.mechanisms.arguments import FloatArray, IntArray
from ldpstream.processes import worker_pool

EPSILONS = (0.5, 1.0, 2.0, 4.0)
SAMPLE_SHARE = 0.05
MOST_PEOPLE = 100_000  # a larger data set is reduced to this number of random people
NEAR = 1 / 1.01
KINDS = ("one-time", "memoized")
INFORMED = ("sample", "shapes")  # the adviser's input: the sample, or only k and n
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
            return Question(k=len(self.case.counts), n=n, eps=self.eps)
        return Question(k=len(self.case.counts), n=n, eps_inf=2 * self.eps, eps_1=self.eps)


class Compared(msgspec.Struct, frozen=True, kw_only=True):
    """Outcome of the comparison in one setting; `better` names the combinations with a significantly smaller error."""

    case: str
    kind: str
    eps: float
    k: int
    n: int
    advice: dict[str, str]
    mse: dict[str, float]
    better: dict[str, list[str]]


def cases(folder: Path | None, names: Sequence[str] = datasets.NAMES) -> list[Case]:
    found = []
    for name in names:
        data = datasets.load(name, folder)
        steps = len(set(data.sizes)) == 1
        for i, k in enumerate(data.sizes[:1] if steps else data.sizes):
            values = data.values[:, i]
            counts = np.bincount(values[values != datasets.ABSENT], minlength=k)
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
    key = zlib.crc32(msgspec.json.encode(setting))
    rng = np.random.default_rng([seed, key])
    sample: IntArray = rng.multivariate_hypergeometric(counts, max(1, round(SAMPLE_SHARE * counts.sum())), method="marginals")
    rest = counts - sample
    question = setting.question(int(rest.sum()))
    known = {"sample": (sample, repeats), "shapes": (None, max(10, repeats // 2))}
    answers = {
        name: advise(question, given, repeats=runs, seed=key + seed, processes=1).first for name, (given, runs) in known.items()
    }
    advice = {name: combination(a.mechanism, a.estimator, a.post) for name, a in answers.items()}
    errors = {
        combination(*key): runs[0]
        for key, runs in simulate(question, question.names, [rest], repeats, key + seed + 2**33, processes=1).items()
    }
    return Compared(
        case=setting.case.name + ("" if setting.case.real else " (generated)"),
        kind=setting.kind,
        eps=setting.eps,
        k=question.k,
        n=question.n,
        advice=advice,
        mse={name: float(runs.mean()) for name, runs in errors.items()},
        better={by: [name for name, runs in errors.items() if worse(errors[chosen], runs)] for by, chosen in advice.items()},
    )


def combination(mechanism: str, estimator: str, post: str) -> str:
    return " ".join((mechanism, estimator, *([] if post == "none" else [post])))


# ---- gains


class Gain(msgspec.Struct, frozen=True, kw_only=True):
    """Comparison of the advice with one choice, over many settings.

    Attributes:
        kept: share of settings in which the advice's error is at most 1 % above the choice's error, or not significantly above.
        near: share of settings in which the advice's error is at most 1 % above the choice's error.
        gain: geometric mean of the choice's error divided by the advice's error.
        least, where: the smallest ratio of the choice's error to the advice's error, and the case and ε where this ratio
            occurs.
    """

    choice: str
    kept: float
    near: float
    gain: float
    least: float
    where: str


def gain(rows: Sequence[Compared], by: str, choice: str, of: Callable[[Compared], str] | None = None) -> Gain:
    against = [choice if of is None else of(row) for row in rows]
    ratios = [row.mse[other] / row.mse[row.advice[by]] for row, other in zip(rows, against, strict=True)]
    worst = int(np.argmin(ratios))
    return Gain(
        choice=choice,
        kept=float(np.mean([r >= NEAR or o not in row.better[by] for row, o, r in zip(rows, against, ratios, strict=True)])),
        near=float(np.mean([ratio >= NEAR for ratio in ratios])),
        gain=math.exp(float(np.mean(np.log(ratios)))),
        least=ratios[worst],
        where=f"{rows[worst].case}, {rows[worst].eps:g}",
    )


def best_fixed(rows: Sequence[Compared]) -> str:
    logs: dict[str, FloatArray] = {name: np.log([row.mse[name] for row in rows]) for name in rows[0].mse}
    return min(logs, key=lambda name: float(logs[name].mean()))


def gains(rows: Sequence[Compared], kind: str, by: str) -> list[Gain]:
    rows = [row for row in rows if row.kind == kind]
    best = best_fixed(rows)
    fixed = [gain(rows, by, choice) for choice in PAPERS[kind]]
    hindsight = gain(rows, by, best)
    oracle = gain(rows, by, "best of each setting", lambda row: min(row.mse, key=lambda name: row.mse[name]))
    return [*fixed, msgspec.structs.replace(hindsight, choice=f"{best} †"), oracle]
