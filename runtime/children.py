"""Starts child processes that end with this process.

If a signal kills this process, the children of `start` end only where `setpriv` exists. The kernel then watches the thread that
started the child, so one lasting thread starts all these children.
"""

import atexit
import multiprocessing
import os
import shutil
import subprocess
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

_launcher = ThreadPoolExecutor(max_workers=1, thread_name_prefix="children")
_started: weakref.WeakSet["subprocess.Popen[Any]"] = weakref.WeakSet()


def start(command: Sequence[str | Path], **options: Any) -> "subprocess.Popen[Any]":
    setpriv = shutil.which("setpriv")
    whole = [setpriv, "--pdeathsig", "KILL", *command] if setpriv else list(command)
    launch = _launcher.submit(_launch, whole, options)
    try:
        return launch.result()
    except BaseException:  # a signal interrupted the wait, or the launch failed
        with suppress(Exception):
            launch.result().kill()
        raise


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


def _launch(command: list[str | Path], options: dict[str, Any]) -> "subprocess.Popen[Any]":
    child = subprocess.Popen(command, **options)
    _started.add(child)
    return child


@atexit.register
def _kill_all() -> None:
    for child in list(_started):
        if child.poll() is None:
            child.kill()
