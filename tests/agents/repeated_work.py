"""Allocates and frees 48 MiB ten times, and prints the number of page faults: python -P repeated_work.py [keep [return]]"""

import resource
import sys

from ldpstream.runtime.process import keep_freed_memory, return_freed_memory


def faults() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def work() -> list[bytes]:
    return [b"x" * 2**24 for _ in range(3)]


if __name__ == "__main__":
    if "keep" in sys.argv:
        keep_freed_memory()
    work()
    before = faults()
    for _ in range(10):
        work()
        if "return" in sys.argv:
            return_freed_memory()
    print(faults() - before)
