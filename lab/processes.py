"""Spreads work over processes, by default one for each core, with single-threaded linear algebra."""

import multiprocessing
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing.connection import wait
from typing import Any

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


@contextmanager
def process_pool(
    processes: int, initializer: Callable[..., object] | None = None, arguments: tuple[Any, ...] = ()
) -> Iterator[ProcessPoolExecutor]:
    """Yields a pool of new Python processes that end with this process. An exception in the context kills them at once.

    Args:
        initializer, arguments: a function that each process calls first, with its arguments.
    """
    pool = ProcessPoolExecutor(processes, multiprocessing.get_context("spawn"), _end_with_parent, (initializer, arguments))
    try:
        yield pool
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        for child in multiprocessing.active_children():
            child.kill()
        raise
    finally:
        pool.shutdown()


def _end_with_parent(initializer: Callable[..., object] | None, arguments: tuple[Any, ...]) -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
    if initializer is not None:
        initializer(*arguments)
