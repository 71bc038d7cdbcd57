"""The wall clock."""

import time


def now_ms() -> int:
    return time.time_ns() // 10**6
