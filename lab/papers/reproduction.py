"""Reproduces published tables and figures on every core, and resumes a run that was stopped."""

import hashlib
import json
import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import as_completed
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from lab.panels import Panel
from lab.processes import cores, one_thread_each, process_pool
from ldpstream.surveys.errors import UserError

ROOT = Path(__file__).resolve().parents[2]
# the code that results depend on
CODE = (
    "mechanisms",
    "estimators",
    "lab/papers",
    "lab/datasets.py",
    "lab/error_measures.py",
    "lab/drawn_tables.py",
)
WIDTH = 3.0  # a published and a reproduced value agree if they differ by at most this many standard deviations

Seen = Callable[[int, int, str], None]
"""(jobs done, jobs in all, target) -> None"""


class ReproductionError(UserError):
    """A reproduction cannot run."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How a reproduction runs: a small part if `quick`, our own methods too if `best`, generated data if `data` is None."""

    quick: bool = False
    best: bool = True
    seed: int = 1
    data: Path | None = None


@dataclass(frozen=True)
class Job:
    """A call of a top-level function. A job with `alone` measures time: it runs without others, and its result is not kept."""

    function: Callable[..., Any]
    arguments: Mapping[str, Any]
    alone: bool = False

    @property
    def key(self) -> str:
        what = [self.function.__module__, self.function.__qualname__, dict(self.arguments), _fingerprint()]
        return hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A published value and our value, in the paper's calibration.

    Attributes:
        published: as printed; None if the paper prints no number (figures).
        spread: standard deviation of `published - ours` by chance alone; 0 for a computed value.
        digit: largest rounding error of the printed value.
        best: value of our best method for this purpose, in the same metric, or None.
        note: the reason for a difference, or a remark that data were generated; "" if there is neither.
    """

    label: str
    ours: float
    published: float | None = None
    spread: float = 0.0
    digit: float = 0.0
    best: float | None = None
    lower_is_better: bool = True
    note: str = ""

    @property
    def difference(self) -> float | None:
        return None if self.published is None else self.ours - self.published

    @property
    def within(self) -> bool | None:
        """True if the values agree up to three standard deviations and the printed digits; None without a published value."""
        if self.difference is None:
            return None
        return abs(self.difference) <= WIDTH * self.spread + self.digit * (1 + 1e-9) + 1e-12

    @property
    def gain(self) -> float | None:
        """Factor by which our best method is better than the paper's; None without `best`, or if the ratio is meaningless."""
        if self.best is None or min(self.best, self.ours) <= 0 or not math.isfinite(self.best / self.ours):
            return None
        return self.ours / self.best if self.lower_is_better else self.best / self.ours


@dataclass(frozen=True, slots=True)
class Outcome:
    rows: Sequence[Row]
    panels: Sequence[Panel] = ()
    notes: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Target:
    """A published table or figure."""

    name: str
    title: str
    plan: Callable[[Plan], Sequence[Job]]
    finish: Callable[[Plan, Sequence[Any]], Outcome]


@dataclass(frozen=True, slots=True)
class Reproduced:
    target: Target
    outcome: Outcome


def reproduce(
    targets: Iterable[Target], plan: Plan, kept: Path, seen: Seen = lambda *_: None, processes: int | None = None
) -> list[Reproduced]:
    """Runs all targets' jobs; a job whose result is in the folder `kept` does not run again.

    Raises:
        ReproductionError: if a job fails; the results of the jobs that ended before are kept.
    """
    planned = [(target, list(target.plan(plan))) for target in targets]
    owners = {job.key: (target, job) for target, jobs in planned for job in jobs}
    kept.mkdir(parents=True, exist_ok=True)
    keepable = [key for key, (_, job) in owners.items() if not job.alone]
    found = {key: result for key in keepable if (result := _load(kept / f"{key}.json")) is not None}
    todo = {key: owner for key, owner in owners.items() if key not in found}
    with one_thread_each(), process_pool(processes or cores()) as pool:
        waiting = {
            pool.submit(_call, job.function, dict(job.arguments)): key for key, (_, job) in todo.items() if not job.alone
        }
        try:
            for done in as_completed(waiting):
                key = waiting[done]
                target, job = owners[key]
                error = done.exception()
                if error is not None:
                    raise _failed(target, job, error)
                found[key] = [done.result()]
                _save(kept / f"{key}.json", found[key])
                seen(len(found), len(owners), target.name)
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
    for key, (target, job) in todo.items():
        if job.alone:
            try:
                found[key] = [_call(job.function, dict(job.arguments))]
            except Exception as error:
                raise _failed(target, job, error) from error
            seen(len(found), len(owners), target.name)
    return [Reproduced(target, target.finish(plan, [found[job.key][0] for job in jobs])) for target, jobs in planned]


def _call(function: Callable[..., Any], arguments: dict[str, Any]) -> Any:
    return function(**arguments)


def _failed(target: Target, job: Job, error: BaseException) -> ReproductionError:
    return ReproductionError(f"{target.name}: {job.function.__qualname__}({_shown(job.arguments)}): {error}")


def _load(file: Path) -> Any:
    try:
        return json.loads(file.read_text())
    except (FileNotFoundError, json.JSONDecodeError):
        return None


def _save(file: Path, result: Any) -> None:
    part = file.with_suffix(f".{os.getpid()}")
    part.write_text(json.dumps(result))
    part.replace(file)


def _shown(arguments: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in arguments.items())


@cache
def _fingerprint() -> str:
    digest = hashlib.sha256(np.__version__.encode())
    for place in CODE:
        path = ROOT / place
        for file in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
            digest.update(file.read_bytes())
    return digest.hexdigest()
