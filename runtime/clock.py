"""The wall clock."""

import time


def now_ms() -> int:
    """The present time, in milliseconds since 1970 UTC."""
    return time.time_ns() // 10**6
