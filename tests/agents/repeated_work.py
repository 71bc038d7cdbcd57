"""Allocates and frees 48 MiB ten times; prints the number of page faults:  python -P tests/agents/repeated_work.py [keep]"""

import resource
import sys

from ldpstream.runtime.malloc import keep_freed_memory


def faults() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def work() -> list[bytes]:
    return [b"x" * 2**24 for _ in range(3)]


if __name__ == "__main__":
    if sys.argv[1:] == ["keep"]:
        assert keep_freed_memory()
    work()
    before = faults()
    for _ in range(10):
        work()
    print(faults() - before)
