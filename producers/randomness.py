"""Independent random streams from one seed, one for each purpose and place."""

from enum import IntEnum

import numpy as np


class Purpose(IntEnum):
    """Purpose of a stream.

    Never change the numbers: a seed's results depend on the numbers.
    """

    VALUES = 0
    ATTRIBUTES = 1
    LEVELS = 2
    ENROLMENT = 3
    MEMOS = 4
    REPORTS = 5
    FAKES = 6
    PHASES = 7
    COHORTS = 8
    NUMBERS = 9
    LIVES = 10
    USE = 11


def stream(seed: int, purpose: Purpose, *place: int) -> np.random.Generator:
    """Returns one of the seed's streams from its beginning, the same at every call.

    Args:
        place: the place of use, such as attribute, level and step: integers in [0, 2^32). Every place of one purpose must have
            the same number of integers.
    """
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(purpose, *place)))
