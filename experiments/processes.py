"""Spreads work over all cores: one process for each, with single-threaded linear algebra."""

import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from typing import Any

from experiments.papers.reproduction import cores, one_thread_each

Spread = Callable[[Callable[[Any], Any], Sequence[Any]], Iterator[Any]]
"""(function, tasks) -> the function's results in the order of the tasks."""


@contextmanager
def worker_pool(processes: int | None, tasks: int) -> Iterator[Spread]:
    """A `map` over processes; with one process, in this process itself.

    Args:
        processes: number of processes; one for each core if left out.
        tasks: number of tasks to come, which sets the size of the chunks; 0 for chunks of one task.
    """
    n = processes or cores()
    if n == 1:
        yield lambda function, items: map(function, items)
        return
    with one_thread_each(), ProcessPoolExecutor(n, mp_context=multiprocessing.get_context("spawn")) as pool:
        yield lambda function, items: pool.map(function, items, chunksize=max(1, min(10, tasks // (8 * n))))
