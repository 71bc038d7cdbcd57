"""Spreads work over processes, by default one for each core, with single-threaded linear algebra."""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from ldpstream.runtime.process import process_pool

THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "NUMBA_NUM_THREADS")
Spread = Callable[[Callable[[Any], Any], Sequence[Any]], Iterator[Any]]
"""(function, tasks) -> the function's results in the order of the tasks."""


@contextmanager
def worker_pool(processes: int | None, tasks: int) -> Iterator[Spread]:
    """Yields a `map` that runs in worker processes, or in this process if the number of processes is 1.

    Args:
        processes: number of processes; None for one process for each core.
    """
    n = processes or cores()
    if n == 1:
        yield lambda function, items: map(function, items)
        return
    with one_thread_each(), process_pool(n) as pool:
        yield lambda function, items: pool.map(function, items, chunksize=max(1, min(10, tasks // (8 * n))))


@contextmanager
def one_thread_each() -> Iterator[None]:
    """Limits OpenBLAS, OpenMP and Numba to one thread in every process that is started inside the context."""
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
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
