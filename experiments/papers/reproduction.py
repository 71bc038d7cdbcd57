"""Published tables and figures, made again: what one is, and how all of them run on every core and go on where they stopped.

A paper's module in `experiments.papers` offers a `Target` for each of its tables and figures. A target plans jobs, calls of a
function with plain arguments that can run anywhere and in any order, and makes rows and curves of their results. A job's result
is kept under the hash of its function, its arguments and the code that it runs, so a run that was stopped goes on where it was.
"""

import hashlib
import json
import math
import multiprocessing
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
# what results depend on
CODE = ("mechanisms", "estimators", "experiments/papers", "experiments/datasets.py", "experiments/bench/accuracy.py")
THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "NUMBA_NUM_THREADS")
WIDTH = 3.0  # standard deviations of chance in which a published and a reproduced value agree

Seen = Callable[[int, int, str], None]
"""(jobs done, jobs in all, target) -> None"""


class ReproductionError(Exception):
    """A reproduction that cannot be run: one line that says why."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How a reproduction runs.

    Attributes:
        quick: a small part that takes seconds, whose figures say little.
        best: whether our own best method runs beside the paper's.
        seed: of all randomness.
        data: the folder of the real data sets, or None: all are generated.
    """

    quick: bool = False
    best: bool = True
    seed: int = 1
    data: Path | None = None


@dataclass(frozen=True)
class Job:
    """A call: a function at the top of its module, and arguments that JSON can hold. It returns what JSON can hold.

    One that is `alone` measures time: it runs after all others, with no other beside it, and its result is not kept.
    """

    function: Callable[..., Any]
    arguments: Mapping[str, Any]
    alone: bool = False

    @property
    def key(self) -> str:
        """Hash of the function, its arguments and all code that it may run."""
        what = [self.function.__module__, self.function.__qualname__, dict(self.arguments), _fingerprint()]
        return hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A published value beside ours.

    Attributes:
        label: which value it is: mechanism, parameters, metric.
        published: as printed; None if the paper prints no number (figures).
        ours: of the paper's method, in its calibration.
        spread: standard deviation of `published - ours` by chance alone: of the paper's mean over its runs and of ours over
            ours. 0 for a value that is computed, not drawn.
        digit: half a unit of the last printed digit.
        best: of our best method for the same purpose, in the same metric; None if there is none or it did not run.
        lower_is_better: whether a small value is a good one, for the gain.
        note: why a value differs, what was generated in place of missing data; "" if there is nothing to say.
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
        """ours - published."""
        return None if self.published is None else self.ours - self.published

    @property
    def within(self) -> bool | None:
        """Whether they agree up to three standard deviations of chance and the printed digits; None without a published one."""
        if self.difference is None:
            return None
        return abs(self.difference) <= WIDTH * self.spread + self.digit * (1 + 1e-9) + 1e-12

    @property
    def gain(self) -> float | None:
        """How many times better our best method is than the paper's; None if it did not run or a ratio says nothing."""
        if self.best is None or min(self.best, self.ours) <= 0 or not math.isfinite(self.best / self.ours):
            return None
        return self.ours / self.best if self.lower_is_better else self.best / self.ours


@dataclass(frozen=True, slots=True)
class Curve:
    """A line of a figure: its name, (x,), (y,), and (y,) standard deviations of one run or None."""

    label: str
    x: Sequence[float]
    y: Sequence[float]
    spread: Sequence[float] | None = None


@dataclass(frozen=True, slots=True)
class Panel:
    """One pair of axes of a figure; `names` are written at x = 0, 1, … in place of numbers, if there are any."""

    title: str
    x: str
    y: str
    curves: Sequence[Curve]
    log_x: bool = False
    log_y: bool = False
    names: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a target: rows, a picture's panels, and sentences that explain differences."""

    rows: Sequence[Row]
    panels: Sequence[Panel] = ()
    notes: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Target:
    """A published table or figure.

    Attributes:
        name: on the command line, such as `ldp3-table-1`.
        title: what it shows, with the paper and its number there.
        plan: the jobs.
        finish: rows and curves of the jobs' results, in the jobs' order.
    """

    name: str
    title: str
    plan: Callable[[Plan], Sequence[Job]]
    finish: Callable[[Plan, Sequence[Any]], Outcome]


@dataclass(frozen=True, slots=True)
class Reproduced:
    """A target's outcome, and how many of its jobs ran now and were not kept from before."""

    target: Target
    outcome: Outcome
    ran: int
    jobs: int = field(default=0)


def reproduce(
    targets: Iterable[Target], plan: Plan, kept: Path, seen: Seen = lambda *_: None, processes: int | None = None
) -> list[Reproduced]:
    """Run all targets' jobs on all cores; results do not depend on how many there are.

    Args:
        targets: what to reproduce.
        plan: how.
        kept: folder of results, made if it is missing; what it holds is not run again.
        seen: told of progress.
        processes: how many at a time; as many as there are cores if left out.

    Raises:
        ReproductionError: if a job fails; all that others found is kept.
    """
    planned = [(target, list(target.plan(plan))) for target in targets]
    owners = {job.key: (target, job) for target, jobs in planned for job in jobs}
    kept.mkdir(parents=True, exist_ok=True)
    keepable = [key for key, (_, job) in owners.items() if not job.alone]
    found = {key: result for key in keepable if (result := _load(kept / f"{key}.json")) is not None}
    todo = {key: owner for key, owner in owners.items() if key not in found}
    context = multiprocessing.get_context("spawn")
    with one_thread_each(), ProcessPoolExecutor(processes or cores(), mp_context=context) as pool:
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
    return [
        Reproduced(
            target,
            target.finish(plan, [found[job.key][0] for job in jobs]),
            sum(job.key in todo for job in jobs),
            len(jobs),
        )
        for target, jobs in planned
    ]


@contextmanager
def one_thread_each() -> Iterator[None]:
    """Let the libraries of every process that is started within use one core: there is a process for each.

    They read how many they may use when they are loaded, before a pool's initializer runs, so the environment has to say it
    that the process inherits. Ours is as before afterwards.
    """
    before = {name: os.environ.get(name) for name in THREADS}
    os.environ.update(dict.fromkeys(THREADS, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _call(function: Callable[..., Any], arguments: dict[str, Any]) -> Any:
    return function(**arguments)


def _failed(target: Target, job: Job, error: BaseException) -> ReproductionError:
    return ReproductionError(f"{target.name}: {job.function.__qualname__}({_shown(job.arguments)}): {error}")


def _load(file: Path) -> Any:
    """The one-element list that was kept, or None."""
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
    """Hash of the code that results depend on, and of NumPy's version."""
    digest = hashlib.sha256(np.__version__.encode())
    for place in CODE:
        path = ROOT / place
        for file in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
            digest.update(file.read_bytes())
    return digest.hexdigest()
