"""Tests that the process keeps freed memory, so that repeated work needs no new memory pages."""

import platform
import subprocess
import sys

import pytest

# Allocates and frees 48 MiB ten times; prints the number of page faults.
WORK = """
import resource
from agents.malloc import keep_freed_memory
{first}
def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
def work():
    return [b"x" * 2**24 for _ in range(3)]
work()
before = faults()
for _ in range(10):
    work()
print(faults() - before)
"""
PAGES = 48 * 2**20 // 4096


def faults(first: str) -> int:
    done = subprocess.run([sys.executable, "-c", WORK.format(first=first)], capture_output=True, text=True, check=True)
    return int(done.stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc has these settings")
def test_freed_memory_is_kept() -> None:
    assert faults("assert keep_freed_memory()") < PAGES
    assert faults("") > 5 * PAGES  # the control: by default glibc returns most of the memory to the system every time
