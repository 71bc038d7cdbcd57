"""Work spread over all cores: a process for each, in which the libraries of linear algebra use one thread."""

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
    """A `map` over processes; in this very process if there is to be but one.

    Args:
        processes: how many; as many as there are cores if left out.
        tasks: how many there will be, for the size of the parts that are handed out.
    """
    n = processes or cores()
    if n == 1:
        yield lambda function, items: map(function, items)
        return
    with one_thread_each(), ProcessPoolExecutor(n, mp_context=multiprocessing.get_context("spawn")) as pool:
        yield lambda function, items: pool.map(function, items, chunksize=max(1, min(10, tasks // (8 * n))))
