"""The wallet: one file and one privacy budget of a person, for all surveys of an application.

    wallet = Wallet("person.wallet", per_window=4.0, window_s=86_400)
    device = Device(load_survey("commute.toml"), wallet)   # WalletFull if the survey does not fit the budget
    device.report("mode", "bicycle")
    wallet.spent()                                         # to show to the person

The wallet admits a survey if the survey's claim (`claims`) and the present charges together fit the budget. The guarantees of
`Device` also hold in a wallet. The enrolment charges the claim. The device reports no step before that of its enrolment.
"""

import time
from dataclasses import dataclass
from pathlib import Path

from ldpstream.device.claims import added
from ldpstream.device.files.memo_file import WalletFile
from ldpstream.device.files.sqlite_file import BUSY_S, DAY_S
from ldpstream.device.files.wallet_file import Accounts, Budget, SurveySpent
from ldpstream.mechanisms.arguments import integer, real

MIN_BUDGET, MAX_BUDGET = 1e-9, 1e9  # nats
MAX_WINDOW_S = 10**12


@dataclass(frozen=True, slots=True)
class WalletSpent:
    """The privacy loss that a person has spent in all surveys. The numbers depend on no value.

    Attributes:
        surveys: one row for each enrolment, the earliest first, without the enrolments that ended without a report.
        spent: bound of the loss of all reports so far between any two histories, in nats.
        charged_per_window: charges for the present window, in nats.
        charged_for_ever: charges for ever, in nats; infinite if a survey's claim has no bound.
    """

    surveys: tuple[SurveySpent, ...]
    spent: float
    charged_per_window: float
    charged_for_ever: float
    budget: Budget


class Wallet:
    """A person's budget for all surveys of an application. ``Device(survey, wallet)`` is the device that answers a survey.

    Objects, processes and threads that share one file are one wallet. The budget does not include reports of devices outside
    the wallet.

    Args:
        per_window: largest loss between histories that differ only within `window_s` seconds, in nats, in [1e-9, 1e9]; None for
            no limit. The device's clock measures the time.
        window_s: length of the window in seconds, in [1, 10^12].
        for_ever: largest loss between any two histories, in nats, in [1e-9, 1e9]; None for no limit. With this limit, the
            wallet refuses a level without `lifetime_reports` in a survey without `ends`.
        expect_enrolled: true if the application knows that this wallet has been made before.
        wait_s: how long a call of the wallet or of its devices waits for another transaction on the file, in seconds, in
            [0, 86 400].

    Raises:
        ValueError: if a limit is out of its range, both are missing, or only one of `per_window` and `window_s` is given.
        StoreCleared: if `expect_enrolled` is true and the file is missing or empty.
        StoreHeld, StoreFull: as for `Device`.
        DeviceError: if the file has other limits, is damaged or cannot be used for another reason. The first consent or
            refusal makes the file, and fixes the limits.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        per_window: float | None = None,
        window_s: int | None = None,
        for_ever: float | None = None,
        expect_enrolled: bool = False,
        wait_s: float = BUSY_S,
    ) -> None:
        budget = _budget(per_window, window_s, for_ever)
        self.file = WalletFile(Path(path), budget, not expect_enrolled, real("wait_s", wait_s, 0, DAY_S))
        with self.file.connection():
            pass

    def __repr__(self) -> str:
        return "<Wallet>"

    def leave(self, pin: str) -> None:
        """Erases the device's memos, envelopes and enrolment in a survey permanently.

        The wallet then charges the loss of the reports made, at most the survey's claim; without a report, nothing. A later
        `Device` for the survey is a new enrolment with a new claim.

        Args:
            pin: the survey's pin, as in `spent`.

        Raises:
            ValueError: if the device is not enrolled in such a survey.
            StoreHeld, StoreFull, StoreCleared, DeviceError: as for `Device`.
        """
        with self.file.connection() as connection:
            accounts = Accounts(connection)
            if (number := accounts.enrolled(pin)) is None:
                raise ValueError(f"pin must be that of a survey in which the device is enrolled, got {pin!r}")
            accounts.leave(number)
            accounts.drop_consent(pin)

    def spent(self) -> WalletSpent:
        """Returns the person's losses so far and the wallet's charges.

        Raises:
            StoreHeld, StoreFull, StoreCleared, DeviceError: as for `Device`.
        """
        with self.file.connection() as connection:
            accounts = Accounts(connection)
            rows = accounts.rows()
            per_window, for_ever = accounts.charged(time.time_ns() // 1_000_000)
        return WalletSpent(rows, added(row.spent for row in rows), per_window, for_ever, self.file.budget)


def _budget(per_window: float | None, window_s: int | None, for_ever: float | None) -> Budget:
    if per_window is None and for_ever is None:
        raise ValueError("a wallet needs a limit: per_window with window_s, or for_ever, or both")
    if (per_window is None) != (window_s is None):
        raise ValueError(f"per_window and window_s belong together, got {per_window!r} and {window_s!r}")
    return Budget(
        None if per_window is None else real("per_window", per_window, MIN_BUDGET, MAX_BUDGET),
        None if window_s is None else integer("window_s", window_s, 1, MAX_WINDOW_S),
        None if for_ever is None else real("for_ever", for_ever, MIN_BUDGET, MAX_BUDGET),
    )
