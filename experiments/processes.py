"""Work spread over all cores: a process for each, in which the libraries of linear algebra use one thread."""

import multiprocessing
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from typing import Any

from experiments.reproduction import cores

ONE_THREAD = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")

Spread = Callable[[Callable[[Any], Any], Sequence[Any]], Iterator[Any]]
"""(function, tasks) -> the function's results in the order of the tasks."""


@contextmanager
def worker_pool(processes: int | None, tasks: int) -> Iterator[Spread]:
    """A `map` over processes; in this very process if there is to be but one.

    The number of threads is in the environment that the processes are born with, not set by an initializer: that runs after
    NumPy has loaded its linear algebra, which then has as many threads as there are cores in every process, and is many times
    slower for it.

    Args:
        processes: how many; as many as there are cores if left out.
        tasks: how many there will be, for the size of the parts that are handed out.
    """
    n = processes or cores()
    if n == 1:
        yield lambda function, items: map(function, items)
        return
    with _environment(ONE_THREAD), ProcessPoolExecutor(n, mp_context=multiprocessing.get_context("spawn")) as pool:
        yield lambda function, items: pool.map(function, items, chunksize=max(1, min(10, tasks // (8 * n))))


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    """The variables set, and afterwards as they were."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
