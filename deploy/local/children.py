"""Child processes that end with this process.

If a signal kills this process, its children end only where `setpriv` exists. The kernel then watches the thread that started
the child, so one lasting thread starts all children.
"""

import atexit
import shutil
import subprocess
import weakref
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

_launcher = ThreadPoolExecutor(max_workers=1, thread_name_prefix="children")
_started: weakref.WeakSet["subprocess.Popen[Any]"] = weakref.WeakSet()


def start_child(command: Sequence[str | Path], **options: Any) -> "subprocess.Popen[Any]":
    setpriv = shutil.which("setpriv")
    whole = [setpriv, "--pdeathsig", "KILL", *command] if setpriv else list(command)
    launch = _launcher.submit(_launch, whole, options)
    try:
        return launch.result()
    except BaseException:  # a signal interrupted the wait, or the launch failed
        with suppress(Exception):
            launch.result().kill()
        raise


def _launch(command: list[str | Path], options: dict[str, Any]) -> "subprocess.Popen[Any]":
    child = subprocess.Popen(command, **options)
    _started.add(child)
    return child


@atexit.register
def _kill_all() -> None:
    for child in list(_started):
        if child.poll() is None:
            child.kill()
