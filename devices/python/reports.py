"""The reports of a device: made once for each step, kept until they are settled, and counted. `Device` is the only subclass."""

import time
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

from ldpstream.device.consent.consent import Consents, NoConsent
from ldpstream.device.errors import ClockWentBack, DeviceError, StepForgotten, StoreCleared, WrongSurvey
from ldpstream.device.files.memo_file import Enrolment, Transaction
from ldpstream.device.files.sqlite_file import SQLiteFile
from ldpstream.device.secure_random import SecureRandom
from ldpstream.device.values import index_of
from ldpstream.mechanisms.arguments import integer
from ldpstream.mechanisms.devices import Parameters, Randomizer
from ldpstream.surveys import Survey
from ldpstream.surveys.envelope import seal_rows

MAX_STEP = 2**62
LATEST_MS = 2**62  # a later moment of sending is stored as this time
IDEMPOTENCY_KEY_BYTES = 16
AHEAD_REPORTS = 24  # so many reports of future steps, made while the clock runs ahead, displace no report of a true step

Values = Mapping[str, str | float | Sequence[str | float]]
Silence = Literal[NoConsent, "other attribute", "other phase", "lifetime reports made", "survey ended", "survey not begun"]


@dataclass(frozen=True, slots=True)
class Spent:
    """Privacy loss of a device's reports of one attribute, in nats. The loss depends on the values: keep it private.

    Attributes:
        reports: t, distinct steps reported.
        eps_t: bound of the loss between the device's values and any unchanged value; None after reports from several memos, or
            if a withdrawal erased memos.
        eps_sequence: bound of the loss between any two sequences of values.
    """

    reports: int
    eps_t: float | None
    eps_sequence: float


@dataclass(frozen=True, slots=True, repr=False)
class Waiting:
    """A report that may need another attempt.

    Attributes:
        key: `Idempotency-Key` of all attempts, as 22 letters, digits, ``-`` and ``_``.
        due_ms: the time from which the report may leave, in ms since 1970; 0 if the survey requires no relay.
    """

    attribute: str
    step: int
    envelope: bytes
    key: str
    due_ms: int = 0


class Reports:
    """A device without its enrolment and consent."""

    survey: Survey
    _file: SQLiteFile
    _cohort: int
    _n_kept: int  # settled envelopes of an attribute that the device keeps
    _randomizers: list[list[Randomizer]]
    _consents: Consents
    _random = SecureRandom()

    def answer(self, values: Values, step: int | None = None) -> dict[str, bytes]:
        """Reports several attributes at a step, and the survey's pairs of them; returns the envelopes by attribute.

        An attribute of which the device makes no report has no entry. All values are checked before the first report.

        Args:
            values: attribute name -> value, as for `report`; no pair.

        Raises:
            ValueError, StepForgotten, ClockWentBack, DeviceError: as for `report`; ValueError also for the name of a pair.
        """
        indices = self._indices(values)
        too_old, step = self._at(step)
        made = {self.survey.attributes[a].name: self._report(a, index, step, too_old) for a, index in indices}
        return {name: envelope for name, envelope in made.items() if envelope is not None}

    def _indices(self, values: Values) -> list[tuple[int, int]]:
        attributes = self.survey.attributes
        for name in values:
            if (pair := attributes[self.survey.index(name)].pair) is not None:
                raise ValueError(f"{name} is a pair: give the values of {pair[0]} and {pair[1]}, and the device derives it")
        given: dict[str, Any] = {a.name: values[a.name] for a in attributes if a.name in values}
        given |= {a.name: [values[x] for x in a.pair] for a in attributes if a.pair and all(x in values for x in a.pair)}
        return sorted((self.survey.index(name), index_of(self.survey, name, value)) for name, value in given.items())

    def report(self, attribute: str, value: str | float | Sequence[str | float], step: int | None = None) -> bytes | None:
        """Returns the envelope with this device's report of a value at a step; None if the device makes no report.

        A device makes no report of an attribute that it does not answer. At a level with `every_steps` the device reports only
        at the steps of its phase, which are `every_steps` apart. The device never makes up for a missed step. At a level with
        `lifetime_reports` the device makes no further report after this number of reports. A device makes no report of a step
        after the survey's last step.

        The first call for a step draws the report; later calls return the same bytes while the envelope is kept. A call for a
        dropped envelope raises `StepForgotten`, or returns None after all `lifetime_reports`. See `silence` for the reason.

        Args:
            value: a text as the survey writes it; the index of one of `values`; an integer for a `size`; or a number for
                `bins`. For a pair: a list with the values of its two attributes. For an attribute with `choices`: a list of the
                person's values, at most `choices` of them; empty for none. No listed value may come twice. All unlisted values
                together count as one.
            step: time step, in [0, 2^62]; default: the present step by the system's clock.

        Raises:
            ValueError: if there is no such attribute, the step is out of range, or the survey refuses the value.
            StepForgotten: if the step can no longer be reported.
            ClockWentBack: the same, if `step` is left out.
            StoreCleared: if the file is missing or has no enrolment.
            StoreHeld, StoreFull, WrongSurvey, DeviceError: as for the constructor.
        """
        index = index_of(self.survey, attribute, value)
        too_old, step = self._at(step)
        return self._report(self.survey.index(attribute), index, step, too_old)

    def _at(self, step: int | None) -> tuple[type[StepForgotten], int]:
        if step is None:
            return ClockWentBack, self.survey.step_at(time.time_ns() // 1_000_000)
        return StepForgotten, integer("step", step, 0, MAX_STEP)

    def _report(self, a: int, index: int, step: int, too_old: type[StepForgotten]) -> bytes | None:
        with self._transaction() as memory:
            if self._silence(memory, a, step) is not None:
                return None
            return self._report_of(memory, a, index, step, too_old)

    def _report_of(self, memory: Transaction, a: int, index: int, step: int, too_old: type[StepForgotten]) -> bytes:
        enrolment, envelope = memory.enrolment(a), memory.sent(a, step)
        randomizer = self._randomizers[a][enrolment.level]
        if envelope:
            return envelope
        if envelope is not None or step <= memory.forgotten(a):
            every_steps = randomizer.parameters.every_steps
            raise too_old(self.survey.attributes[a].name, step, memory.earliest(a, step, every_steps))
        return self._first_report(memory, a, randomizer, enrolment, index, step)

    def silence(self, attribute: str, step: int | None = None) -> Silence | None:
        """Returns why the device makes no report of an attribute at a step, whatever the value; None if it makes a report.

        None also if the step was forgotten, for which `report` raises `StepForgotten`.

        Args:
            step: as for `report`.

        Returns:
            "switched off": a switch turns devices off (`consent.switched_off`); "consent unknown": the person has not agreed;
            "consent withdrawn": the person disagreed; "other attribute": the device answers other attributes (smp);
            "other phase": it reports at other steps, which are `every_steps` apart; "lifetime reports made": it has made all
            `lifetime_reports`; "survey ended": the step is after the survey's last step; "survey not begun": the clock shows a
            time before the survey's start.

        Raises:
            ValueError: if there is no such attribute, or the step is out of range.
            DeviceError: as for `report`.
        """
        a, (_, step) = self.survey.index(attribute), self._at(step)
        with self._transaction() as memory:
            return self._silence(memory, a, step)

    def _silence(self, memory: Transaction, a: int, step: int) -> Silence | None:
        if (muted := self._muted(memory).get(self.survey.attributes[a].name)) is not None:
            return muted
        return self._own_silence(memory, a, step)

    def _own_silence(self, memory: Transaction, a: int, step: int) -> Silence | None:
        enrolment = memory.enrolment(a)
        p = self._randomizers[a][enrolment.level].parameters
        if not enrolment.answers:
            return "other attribute"
        if self.survey.ended(step):
            return "survey ended"
        if step < 0:
            return "survey not begun"
        if step % p.every_steps != enrolment.phase:
            return "other phase"
        return "lifetime reports made" if not memory.sent(a, step) and _finished(memory, a, p) else None

    def waiting(self) -> list[Waiting]:
        """Returns the kept reports that are not settled, in the order of steps; without consent, none.

        The device keeps up to `lateness_steps` + 2 + `AHEAD_REPORTS` such reports of an attribute, and drops the others.

        Raises:
            DeviceError: as for `report`.
        """
        names = [attribute.name for attribute in self.survey.attributes]
        with self._transaction() as memory:
            muted = self._muted(memory)
            if len(muted) == len(names):
                return []
            rows = memory.waiting()
        return [Waiting(names[a], *row) for a, row in rows if names[a] not in muted]

    def settle(self, report: Waiting) -> None:
        """Marks a report as settled: no further attempt is needed.

        The device then drops all envelopes, also unsettled ones, that are earlier than the `lateness_steps` + 2 latest settled
        envelopes of the attribute.

        Raises:
            DeviceError: as for `report`.
        """
        with self._transaction() as memory:
            self._muted(memory)
            if memory.enrolled():
                memory.settle(report.key, self._n_kept)

    def spent(self, attribute: str) -> Spent:
        """Returns the privacy loss of an attribute's reports so far.

        For some memoized mechanisms, the bounds are closer if NumPy is installed (the extra ``simulation``).

        If the survey splits the budget (spl), the attributes' losses add up. With sampling plus fake data (rs+fd), the loss of
        all attributes together is at most the largest loss of an attribute.

        Raises:
            ValueError: if there is no such attribute.
            DeviceError: as for `report`.
        """
        a = self.survey.index(attribute)
        with self._transaction() as memory:
            self._muted(memory)
            if not memory.enrolled() or memory.counts(a)[0] == 0:
                return Spent(0, 0.0, 0.0)
            m = self.survey.mechanisms[a][memory.enrolment(a).level].device
            t, memos, of_memos = memory.counts(a)
        if m.memoized and of_memos < t:  # a withdrawal erased memos
            return Spent(t, None, t * m.claims.eps_per_report)
        unchanged = _closest(lambda: m.eps_t(t), m.eps_inf) if memos <= 1 else None
        return Spent(t, unchanged, _closest(lambda: m.eps_sequence(t).value, t * m.claims.eps_per_report))

    # ---- a report

    def _first_report(
        self, memory: Transaction, a: int, randomizer: Randomizer, enrolment: Enrolment, index: int, step: int
    ) -> bytes:
        index = index if enrolment.fake < 0 else enrolment.fake
        function = enrolment.function
        key = randomizer.memo_key(index, function)
        if randomizer.memoized:
            memo = self._recall(memory, randomizer, a, key, function)
        else:
            memo = randomizer.memoize(key, function, self._random)
        row = randomizer.report(memo, self._random)
        envelope = seal_rows(self.survey, a, enrolment.level, step, 1, row, self._cohort)
        idempotency_key = urlsafe_b64encode(self._random.bytes(IDEMPOTENCY_KEY_BYTES)).rstrip(b"=").decode()
        due_ms = 0 if self.survey.relay is None else self._moment(step)
        memo_key = key if randomizer.memoized else None
        memory.keep(a, step, envelope, memo_key, self._n_kept + AHEAD_REPORTS, idempotency_key, due_ms)
        return envelope

    def _moment(self, step: int) -> int:
        random_ms = 1000 * self._random.below(self.survey.step_seconds) + self._random.below(1000)
        return min(self.survey.opens_ms(step + 1) + random_ms, LATEST_MS)

    def _recall(self, memory: Transaction, randomizer: Randomizer, a: int, key: int, function: int) -> bytes:
        memo = memory.memo(a, key, lambda: randomizer.memoize(key, function, self._random))
        if not randomizer.is_memo(memo, function):
            raise DeviceError(f"{self._file.path}: the memo of {self.survey.attributes[a].name} is damaged")
        return memo

    # ---- the file

    @contextmanager
    def _transaction(self, create: bool = False) -> Iterator[Transaction]:
        with self._file.connection(create) as connection:
            yield Transaction(connection, self._file, self.survey)

    def _muted(self, memory: Transaction, *, fresh: bool = False) -> dict[str, NoConsent]:
        """Returns the attributes without consent, each with the reason.

        Args:
            fresh: true if the device may enroll, false if it has to be enrolled wherever consent is given.
        """
        muted = self._consents.muted(memory)
        every = len(muted) == len(self.survey.attributes)
        if memory.pin() is not None or not (fresh or every):
            self._require_this_survey(memory)
        return muted

    def _require_this_survey(self, memory: Transaction) -> None:
        kept = memory.pin()
        if kept is None:
            raise StoreCleared(f"{self._file.path}: the enrolment was erased; make a new Device to enroll again")
        if kept != self.survey.pin:
            raise WrongSurvey(
                f"{self._file.path}: belongs to the survey with the pin {kept}, not to {self.survey.name} with the pin"
                f" {self.survey.pin}; each survey needs its own file and its own budget"
            )


def _closest(calculate: Callable[[], float], bound: float) -> float:
    """Returns a loss; the bound if a package for its calculation is missing."""
    try:
        return calculate()
    except ModuleNotFoundError:
        return bound


def _finished(memory: Transaction, a: int, p: Parameters) -> bool:
    return p.lifetime_reports is not None and memory.counts(a)[0] >= p.lifetime_reports
