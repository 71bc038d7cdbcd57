"""A seeded random source of devices, for the audit and the check of a device."""

from collections.abc import Iterator

import numpy as np
import pytest

from lab.audit import samplers
from ldpstream.device import Device
from ldpstream.device.secure_random import SecureRandom


class Seeded(SecureRandom):
    """A device's random source, with a seed."""

    _rng = np.random.default_rng(20260603)

    def bytes(self, n: int) -> bytes:
        return self._rng.bytes(n)


@pytest.fixture(scope="module")
def seeded_devices() -> Iterator[None]:
    """Makes the audit's devices draw from a seeded source."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(samplers, "SecureRandom", Seeded)
        patch.setattr(Device, "_random", Seeded())
        yield
