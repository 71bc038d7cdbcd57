"""Tests that the process keeps freed memory, so that repeated work needs no new memory pages, and returns it when asked."""

import platform
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).with_name("repeated_work.py")
PAGES = 48 * 2**20 // 4096


def faults(*arguments: str) -> int:
    done = subprocess.run([sys.executable, "-P", PROGRAM, *arguments], capture_output=True, text=True, check=True)
    return int(done.stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc has these settings")
def test_freed_memory_is_kept_until_it_is_returned() -> None:
    assert faults("keep") < PAGES
    assert faults() > 5 * PAGES  # the control: by default glibc returns most of the memory to the system every time
    assert faults("keep", "return") > 5 * PAGES
