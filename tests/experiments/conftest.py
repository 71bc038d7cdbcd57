"""Gives the devices a seeded random source, so that the tests are deterministic."""

from collections.abc import Iterator

import numpy as np
import pytest

from experiments.audit import samplers
from producers.device import device
from producers.device.secure_random import SecureRandom


class Seeded(SecureRandom):
    """A device's random source, with a seed."""

    _rng = np.random.default_rng(20260603)

    def bytes(self, n: int) -> bytes:
        return self._rng.bytes(n)

    def below(self, n: int) -> int:
        return int(self._rng.integers(n))


@pytest.fixture(scope="module")
def seeded_devices() -> Iterator[None]:
    """Makes the audit's devices draw from a seeded source."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (samplers, device):
            patch.setattr(module, "SecureRandom", Seeded)
        yield
