"""The exit status of a process that was told to end."""

import os
import subprocess
import sys

import pytest

from tests.agents.test_app import SAMPLE

COMMAND = """
def run():
    ends_on_signal(60)
    signal.raise_signal(signal.SIGTERM)
    {}

import signal
from ldpstream import __main__
from ldpstream.commands import cli
from ldpstream.services.signals import ends_on_signal
cli.run = run
__main__.main()
"""
WORKER = """
async def start():
    worker._install_signal_handlers_unix()
    signal.raise_signal(signal.SIGTERM)
    {}

import signal
import ldpstream.agents.app as app
worker = app._from_environment().Worker(quiet=True)
worker.start = start
worker.execute_from_commandline()
"""


@pytest.mark.parametrize("program", [COMMAND, WORKER], ids=["command", "worker"])
@pytest.mark.parametrize(
    ("end", "status"),
    [("pass", 0), ("raise SystemExit(3)", 3), ("raise SystemExit('words')", 1), ("1 / 0", 1)],
)
def test_the_shutdown_deadline_keeps_the_status_of_a_failure(program: str, end: str, status: int) -> None:
    named = {"LDPSTREAM_SURVEY": str(SAMPLE)}
    done = subprocess.run([sys.executable, "-P", "-c", program.format(end)], env=os.environ | named, capture_output=True)
    assert (done.returncode, b"words" in done.stderr) == (status, "words" in end), done.stderr


HELD = """
import signal, threading
from ldpstream.runtime import process

process.ALARM_AFTER_S = 600  # the deadline's thread must end the process
{}
"""
EVENT = """
from ldpstream.services.signals import ends_on_signal

stop = ends_on_signal(600)
with stop._cond, threading._active_limbo_lock:
    signal.raise_signal(signal.SIGTERM)
    signal.raise_signal(signal.SIGTERM)
stop.wait()
"""
FAUST = """
import asyncio
import ldpstream.agents.app as app

app.STOP_S = 0.1
worker = app._from_environment().Worker(quiet=True)
worker._install_signal_handlers_unix()
with threading._active_limbo_lock:
    signal.raise_signal(signal.SIGTERM)
    signal.raise_signal(signal.SIGTERM)
    threading.Event().wait()
"""
MAIN = """
from ldpstream import __main__
from ldpstream.commands import cli

def run():
    try:
        with threading._active_limbo_lock:
            signal.raise_signal(signal.SIGTERM)
    finally:
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGINT)
        threading.Event().wait()

__main__.STOP_S, cli.run = 0.1, run
__main__.main()
"""


@pytest.mark.parametrize(("program", "status"), [(EVENT, 0), (FAUST, 0), (MAIN, 143)], ids=["event", "faust", "main"])
def test_signals_end_a_process_whose_main_thread_holds_the_locks_of_threading(program: str, status: int) -> None:
    """The second program never reaches its event loop, and the third one hangs while it cleans up."""
    done = subprocess.run(
        [sys.executable, "-P", "-c", HELD.format(program)],
        env=os.environ | {"LDPSTREAM_SURVEY": str(SAMPLE)}, capture_output=True, timeout=600, check=False,
    )  # fmt: skip
    assert done.returncode == status, done.stderr


TWO_AT_ONCE = """
import signal
from ldpstream.commands.trial import ENDING, until_ctrl_c

with until_ctrl_c():
    signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
    for number in ENDING:
        signal.raise_signal(number)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)
    raise AssertionError("no signal ended the block")
"""


def test_signals_at_the_same_time_end_the_local_services_without_a_word_on_standard_error() -> None:
    done = subprocess.run([sys.executable, "-P", "-c", TWO_AT_ONCE], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "Everything has ended.\n", "")
