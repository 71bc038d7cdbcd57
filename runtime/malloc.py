"""Memory of the process: settings of the C library's allocator, and the return of memory to the system."""

import ctypes
import sys

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # option numbers in glibc's malloc.h
_MADV_DONTNEED = 4  # of Linux's mman.h
LARGEST_BYTES, KEPT_BYTES = 32 * 2**20, 64 * 2**20


def keep_freed_memory() -> None:
    """Makes glibc keep freed memory for reuse."""
    if sys.platform == "linux" and (mallopt := getattr(ctypes.CDLL(None), "mallopt", None)) is not None:
        mallopt(_MMAP_THRESHOLD, LARGEST_BYTES)
        mallopt(_TRIM_THRESHOLD, KEPT_BYTES)


def return_freed_memory() -> None:
    """Makes the C library return its freed memory to the system."""
    if sys.platform == "linux" and (trim := getattr(ctypes.CDLL(None), "malloc_trim", None)) is not None:
        trim(0)


def return_compiler() -> None:
    """Gives the machine code of LLVM back to the system; has no effect except on Linux."""
    if sys.platform != "linux":
        return
    with open("/proc/self/maps", encoding="utf-8") as maps:
        code = [line.split()[0].split("-") for line in maps if " r-xp " in line and line.rstrip().endswith("/libllvmlite.so")]
    for first, end in code:
        size = int(end, 16) - int(first, 16)
        ctypes.CDLL(None).madvise(ctypes.c_void_p(int(first, 16)), ctypes.c_size_t(size), _MADV_DONTNEED)
