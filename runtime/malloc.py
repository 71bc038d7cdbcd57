"""Settings of the C library's memory allocator."""

import ctypes
import sys

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # option numbers in glibc's malloc.h
LARGEST_BYTES, KEPT_BYTES = 32 * 2**20, 64 * 2**20


def keep_freed_memory() -> bool:
    """Makes the C library keep freed memory for reuse, up to 64 MiB in each of its arenas.

    By default glibc returns large blocks to the system. Every chunk of records and every state of a filter then needs new
    memory pages. A record of 16 KiB causes up to seven page faults, which cost a third of an agent's time. glibc's default
    thresholds depend on the size of the first freed blocks.

    Returns:
        True if the settings took effect. Only glibc has these settings.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    return mallopt is not None and mallopt(_MMAP_THRESHOLD, LARGEST_BYTES) + mallopt(_TRIM_THRESHOLD, KEPT_BYTES) == 2


def return_freed_memory() -> None:
    """Makes the C library return all freed memory to the system, which takes some milliseconds. Has no effect without glibc."""
    if sys.platform == "linux" and (trim := getattr(ctypes.CDLL(None), "malloc_trim", None)) is not None:
        trim(0)
