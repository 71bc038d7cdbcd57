"""The log of a process at level debug."""

import subprocess
import sys

PROGRAM = """
import logging
import numba
from ldpstream.runtime.logs import start_log
start_log("debug")
assert numba.njit(lambda x: x + 1)(1) == 2
logging.getLogger("any.other").debug("a control")
"""


def test_compiling_a_kernel_logs_nothing_at_level_debug() -> None:
    """Numba's own debug lines made the compilation of the estimator's kernels take minutes."""
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    (line,) = done.stderr.splitlines()
    assert "a control" in line
