"""Budgets: how much one client adds to a step of a survey.

A client without a collector's token adds at most this number of reports to a histogram (an attribute and a step):

    max(`LEAST_REPORTS`, all reports of the histogram so far / `PARTS`, all reports of the step before / `PARTS`)

It adds at most this number of report keys to a step of the append time:

    max(`LEAST_KEYS`, all keys of the step so far / `PARTS`, all keys of the step before / `PARTS`)

Collectors and relays have no budget. "All" includes their reports and keys. A gateway knows what it has received itself since
its start, and nothing of other gateways.

The memory is bounded: for each histogram `Amounts` keeps at most 2 `KEPT` clients. It may overstate a client's amount, never
understate it. So no client exceeds its budget. A client that has used at most half of its budget is never refused, unless
many charges of the histogram were undone.
"""

from collections.abc import Hashable, Mapping
from typing import Final

from ldpstream.promises.false_reports import LEAST_REPORTS
from ldpstream.surveys import Survey
from ldpstream.surveys.report_key import MAX_KEYS

LEAST_KEYS: Final = MAX_KEYS // 64
PARTS: Final = 100  # a client may add one part in 100
KEPT: Final = 2 * PARTS  # amounts are overstated by at most one part in 200
KEYS: Final = -1  # in place of the index of an attribute: the report keys of a step of the append time

Place = tuple[int, int]  # index of an attribute, or `KEYS`; step


class Amounts:
    """The amounts of clients in one histogram: the summary of Misra and Gries (1982), with an upper bound for each client.

    Attributes:
        total: sum of the amounts of all clients, also of those without a budget.
        largest: upper bound of the largest amount of a client with a budget.

    >>> amounts = Amounts()
    >>> amounts.add("a", 3)
    >>> amounts.most("a"), amounts.most("b")
    (3, 0)
    """

    __slots__ = ("_floor", "_kept", "largest", "total")

    def __init__(self) -> None:
        self._kept: dict[Hashable, int] = {}
        self._floor = self.total = self.largest = 0

    def most(self, client: Hashable) -> int:
        """Returns an upper bound of the client's amount: larger by at most (sum of all amounts) / (`KEPT` + 1)."""
        return self._kept.get(client, 0) + self._floor

    def add(self, client: Hashable, amount: int) -> None:
        """Adds to a client's amount; to the total alone if the client is None."""
        self.total += amount
        if client is None:
            return
        kept = self._kept[client] = self._kept.get(client, 0) + amount
        if kept + self._floor > self.largest:
            self.largest = kept + self._floor
        if len(self._kept) > 2 * KEPT:
            least = sorted(self._kept.values())[-KEPT - 1]
            self._kept = {one: n - least for one, n in self._kept.items() if n > least}
            self._floor += least

    def take_back(self, client: Hashable, amount: int) -> None:
        """Undoes an earlier `add`."""
        self.total -= amount
        if (left := self._kept.get(client, 0) - amount) > 0:
            self._kept[client] = left
        else:
            self._kept.pop(client, None)
        self.largest = max(self._kept.values(), default=0) + self._floor


class Budgets:
    """The budgets of all clients in one survey."""

    def __init__(self, survey: Survey) -> None:
        self._survey = survey
        self._amounts: dict[Place, Amounts] = {}

    def charge(self, client: Hashable, amounts: Mapping[Place, int]) -> bool:
        """Charges the client; None stands for a client without a budget.

        Returns False, and charges nothing, if one of the amounts would exceed the client's budget.
        """
        charged = list[tuple[Amounts, int]]()
        for place, amount in amounts.items():
            if (found := self._amounts.get(place)) is None:
                found = self._amounts[place] = Amounts()
            used = 0 if client is None else found.most(client) + amount
            if used > LEAST_REPORTS and used > self._limit(place, found):
                return False
            charged.append((found, amount))
        for found, amount in charged:
            found.add(client, amount)
        return True

    def _limit(self, place: Place, found: Amounts) -> int:
        what, step = place
        before = self._amounts.get((what, step - 1))
        total = found.total if before is None else max(found.total, before.total)
        return max(LEAST_KEYS if what == KEYS else LEAST_REPORTS, total // PARTS)

    def take_back(self, client: Hashable, amounts: Mapping[Place, int]) -> None:
        """Undoes an earlier `charge`."""
        for place, amount in amounts.items():
            if (found := self._amounts.get(place)) is not None:
                found.take_back(client, amount)

    def forget(self, now_ms: int) -> None:
        """Forgets the steps that take no more reports, except the last one."""
        for what, step in [place for place in self._amounts if self._survey.too_old(place[1] + 1, now_ms)]:
            del self._amounts[what, step]

    def largest_share(self) -> float:
        """Returns an upper bound of the largest client's share of a histogram, of at least `LEAST_REPORTS` reports."""
        found = [one for (what, _), one in list(self._amounts.items()) if what != KEYS]
        return max((one.largest / max(one.total, LEAST_REPORTS) for one in found), default=0.0)
