"""What becomes of memory that is freed."""

import ctypes
import sys

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # as glibc's malloc.h numbers them
LARGEST_BYTES, KEPT_BYTES = 32 * 2**20, 64 * 2**20


def keep_freed_memory() -> bool:
    """Have the C library keep what is freed, up to 64 MiB in each of its arenas, for what comes next.

    glibc gives large pieces back to the system, at thresholds that it moves by what happens to be freed first. Then every chunk
    pays for its pages anew: up to seven page faults for a record of 16 KiB, a third of an agent's time.

    Returns:
        Whether that could be done: only glibc can be told.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    return mallopt is not None and mallopt(_MMAP_THRESHOLD, LARGEST_BYTES) + mallopt(_TRIM_THRESHOLD, KEPT_BYTES) == 2
