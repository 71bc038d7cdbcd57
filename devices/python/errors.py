"""The errors of a device.

A message never has a value of a person.

If `Device.report` raises one of these errors, it has made no report. If `Device.answer` raises one, it may have reported some
attributes.
"""

import math

from ldpstream.mechanisms.wording import plural


def _nats(loss: float) -> str:
    """Returns a privacy loss with six digits and its unit.

    >>> _nats(1e6), _nats(0.1 + 0.2), _nats(math.inf)
    ('1000000 nats', '0.3 nats', 'inf nats')
    """
    return plural(f"{float(f'{loss:.6g}'):.15g}", "nat")


class DeviceError(Exception):
    """The device cannot do what was asked."""


class UnknownSurvey(DeviceError):
    """This version of the device cannot answer the survey."""


class WrongSurvey(DeviceError):
    """The file, or the application's pin, belongs to another survey."""


class CostlySurvey(DeviceError):
    """The survey may cost more privacy than the application allows.

    Attributes:
        asked: the largest loss of all reports while the values stay the same, in nats; infinite without a bound.
    """

    def __init__(self, survey: str, asked: float, allowed: float) -> None:
        super().__init__(f"{survey} may cost {_nats(asked)} while the values stay the same; the maximum is {_nats(allowed)}")
        self.survey, self.asked, self.allowed = survey, asked, allowed


class RelayRequired(DeviceError):
    """The survey requires a relay, and the application gave none."""


class NotSigned(DeviceError):
    """The survey has no signature by a key that the application expects."""


class StoreHeld(DeviceError):
    """Another transaction holds the file for longer than the device waits."""


class StoreFull(DeviceError):
    """The disk is full."""


class StoreCleared(DeviceError):
    """The file of an enrolled device is missing or has no enrolment."""


class StepForgotten(DeviceError):
    """The step can no longer be reported.

    Attributes:
        earliest: the first later step of the device's phase that is neither reported nor forgotten.
    """

    def __init__(self, attribute: str, step: int, earliest: int) -> None:
        super().__init__(f"step {step} of {attribute} can be reported no more; the next that can be reported is {earliest}")
        self.attribute, self.step, self.earliest = attribute, step, earliest


class ClockWentBack(StepForgotten):
    """The present step of the system's clock can no longer be reported."""

    def __init__(self, attribute: str, step: int, earliest: int) -> None:
        super().__init__(attribute, step, earliest)
        self.args = (
            f"the clock went back to step {step} of {attribute}, which can be reported no more; the next is step {earliest}",
        )


class WalletFull(DeviceError):
    """The survey asks for more privacy budget than the wallet has left.

    Attributes:
        window_s: length of the budget's window in seconds; None for the budget for ever.
        asked: the survey's claim, in nats; infinite if nothing bounds its loss.
    """

    def __init__(self, survey: str, window_s: int | None, asked: float, left: float) -> None:
        span = "for ever" if window_s is None else f"within {window_s} s"
        unbounded = ": its level has no lifetime_reports and the survey has no end" if asked == math.inf else ""
        super().__init__(f"{survey} asks {_nats(asked)} {span}{unbounded}; the wallet has {_nats(left)} left")
        self.survey, self.window_s, self.asked, self.left = survey, window_s, asked, left
