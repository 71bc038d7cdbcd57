"""The exit status of a process that was told to end."""

import os
import subprocess
import sys

import pytest

from tests.agents.test_app import SAMPLE

COMMAND = """
def run():
    end_within(60)
    {}

from ldpstream import __main__, cli
from ldpstream.runtime.shutdown import end_within
cli.run = run
__main__.main()
"""
WORKER = """
async def start():
    app._end_in_time()
    {}

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
