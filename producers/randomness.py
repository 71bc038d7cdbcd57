"""One seed, many independent random streams: each purpose and place has its own, so nothing depends on the order of use.

These streams are for simulation. A real device takes its randomness from a cryptographic source.
"""

from enum import IntEnum

import numpy as np


class Purpose(IntEnum):
    """What a stream is for; no two purposes share randomness. The numbers are part of what a seed means: keep them."""

    VALUES = 0
    ATTRIBUTES = 1
    LEVELS = 2
    ENROLMENT = 3
    MEMOS = 4
    REPORTS = 5
    FAKES = 6


def stream(seed: int, purpose: Purpose, *place: int) -> np.random.Generator:
    """The beginning of one of the seed's streams, the same at every call.

    Args:
        seed: at least 0.
        purpose: what it is for.
        place: where it is used, such as attribute, level and step: equally many integers in [0, 2^32) for each use of a
            purpose.
    """
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(purpose, *place)))
