"""Tests that the process keeps freed memory, so that repeated work needs no new memory pages, and returns it when asked."""

import gc
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from ldpstream.agents.app import COLLECT_AFTER
from ldpstream.agents.consumer.batches import PIECE_RECORDS
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
