"""Tests that the process keeps freed memory, so that repeated work needs no new memory pages, and returns it when asked."""

import gc
import platform
import re
import subprocess
import sys
from pathlib import Path

import numba
import pytest

from ldpstream.agents.app import COLLECT_AFTER
from ldpstream.agents.consumer.batches import PIECE_RECORDS
from ldpstream.runtime.process import return_compiler
from tests.agents.fetched import batch, read, unread

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


def collections(threshold: int) -> int:
    """Number of garbage collections while a batch of small records is read."""
    raw, before, started = bytes(batch(0, [b"value"] * PIECE_RECORDS)), gc.get_threshold(), []
    gc.callbacks.append(note := lambda phase, _: started.append(phase))
    gc.set_threshold(threshold)
    try:
        [piece] = read(unread(raw, 0))
    finally:
        gc.set_threshold(*before)
        gc.callbacks.remove(note)
    assert len(piece.offsets) == PIECE_RECORDS
    return started.count("start")


def test_small_records_cause_few_garbage_collections() -> None:
    gc.collect()
    assert collections(COLLECT_AFTER) <= 1
    assert collections(700) > 10  # the control: Python's default


def compiler_bytes() -> int:
    """Size of LLVM's machine code in the memory of this process."""
    maps = Path("/proc/self/smaps").read_text(encoding="utf-8")
    return 1024 * sum(map(int, re.findall(r"r-xp .*/libllvmlite\.so\n(?:\w+: .*\n)*?Rss: +(\d+) kB", maps)))


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux takes the pages back")
def test_the_compiler_is_returned_and_can_compile_again() -> None:
    add = numba.njit(lambda a, b: a + b)
    assert add(1, 2) == 3
    assert compiler_bytes() > 20 * 2**20
    return_compiler()
    assert compiler_bytes() == 0
    assert add(1, 2) == 3
    assert compiler_bytes() == 0, "a kernel runs without LLVM"
    assert add(1.5, 2.0) == 3.5  # compiled for other types
    assert compiler_bytes() > 2**20
