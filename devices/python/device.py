"""The device: one person's client, which an application embeds.

    device = Device(load_survey("commute.toml"), "answers.device")
    if device.to_ask() and agrees(device.question()):         # your application shows the text and asks the person
        device.give_consent()                                 # enrolls the device permanently
    device.answer({"mode": "bicycle", "zone": 17})            # also pairs; under smp a device answers one attribute
    for report in device.waiting():                           # includes reports from before a restart
        if post(report.envelope, report.key):                 # retry freely: the key makes all attempts count once
            device.settle(report)

Without the person's consent, and while a switch turns devices off (`consent`), the device draws, stores and sends nothing.
Until `Device.forget` or `Device.withdraw_consent`:

1. a memo key gets one memo, which is on the disk before the device returns a report from it;
2. a step has at most one report of an attribute, despite repeated calls, crashes and parallel processes;
3. `Device.spent` counts every report that may have left the device;
4. an envelope has one idempotency key, stored with the envelope until `Device.settle` or until the envelope is dropped.

No error message or `repr` contains a true value. The file may contain true values: see docs/howto/device.md.
"""

import math
import re
import time
from base64 import urlsafe_b64encode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ldpstream.device.claims import largest_loss
from ldpstream.device.consent.consent import ConsentMode, Consents, NoConsent
from ldpstream.device.consent.consenting import Consenting, Values
from ldpstream.device.errors import (
    ClockWentBack,
    CostlySurvey,
    DeviceError,
    NotSigned,
    StepForgotten,
    UnknownSurvey,
    WrongSurvey,
)
from ldpstream.device.files.memo_file import TABLES, Enrolment, Transaction
from ldpstream.device.files.sqlite_file import BUSY_S, DAY_S, DEVICE, SQLiteFile
from ldpstream.device.secure_random import SecureRandom
from ldpstream.mechanisms.arguments import integer, real
from ldpstream.mechanisms.devices import Parameters, Randomizer
from ldpstream.surveys import Attribute, Survey
from ldpstream.surveys.envelope import seal_rows
from ldpstream.surveys.signatures import SignatureError, public_keys, require_signature

if TYPE_CHECKING:
    from ldpstream.device.wallet import Wallet

MAX_STEP = 2**62
LATEST_MS = 2**62  # a later moment of sending is stored as this time
MAX_EPS = 1e9  # nats
TOLERANCE = 1e-9  # nats; for the rounding of the split budgets
IDEMPOTENCY_KEY_BYTES = 16
AHEAD_REPORTS = 24  # so many reports of future steps, made while the clock runs ahead, displace no report of a true step

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


class Device(Consenting):
    """A person's device, which answers a survey with sanitized reports.

    Objects, processes and threads that share one file are one device.

    Args:
        survey: the survey; a file made for another survey is an error.
        path: the device's file, or the person's wallet. Do not derive the file's name from the survey's name: a renamed survey
            would get a new file and a fresh budget.
        levels: attribute name -> name of the level that the participant chose. An attribute without an entry gets its first
            level. The first use fixes the levels permanently.
        expect_enrolled: true if the application knows that this device has enrolled before.
        pin: the `pin` of the survey that the application expects, as 64 hexadecimal digits; None for any survey. A fingerprint
            is too short: its author can make a second survey with the same 16 digits.
        max_eps: the largest allowed loss of all reports while the values stay the same, in nats; None for no limit.
        cohort: the device's present cohort, one of the survey's; None for a survey without cohorts. The cohort travels in
            clear: it must not depend on a value.
        signed_by: one or several public keys, one of which must have signed the survey; None for no check.
        also_signed_by: other keys, one of which must also have signed the survey; None for no second signature.
        wait_s: how long a call waits for another transaction on the file, in seconds, in [0, 86 400].
        signature: with `signed_by`: the survey's signatures, each as JSON in one line, such as the text of `signatures.jsonl`.
        consent: "asked": the device keeps the person's answer in its file, and does nothing before `give_consent`. "given": the
            application has asked the person in another way, and the person agreed. "simulated": there is no person, so the
            switches that turn devices off do not count. A withdrawal in the file counts always.

    Raises:
        ValueError: if an argument is invalid, `signature` is given without `signed_by`, or a key of `also_signed_by` is also in
            `signed_by`.
        NotSigned: if the survey is not signed by `signed_by` and `also_signed_by`, or a signature cannot be read.
        ModuleNotFoundError: if there is a signature to verify, and the package cryptography is not installed.
        UnknownSurvey: if the survey has a mechanism for which this version of the device has no randomizer.
        WrongSurvey: if the file or the pin belongs to another survey.
        CostlySurvey: if the survey may cost more than `max_eps`, at this device's levels.
        StoreCleared: if `expect_enrolled` is true and the file is missing or has no enrolment.
        StoreHeld, StoreFull: if another transaction holds the file for longer than `wait_s`; if the disk is full.
        DeviceError: if the file is damaged, has other levels or cannot be used for another reason.
    """

    _random = SecureRandom()

    def __init__(
        self,
        survey: Survey,
        path: "str | Path | Wallet",
        levels: Mapping[str, str] | None = None,
        *,
        expect_enrolled: bool = False,
        pin: str | None = None,
        max_eps: float | None = None,
        cohort: str | None = None,
        signed_by: str | Sequence[str] | None = None,
        also_signed_by: str | Sequence[str] | None = None,
        signature: str | None = None,
        wait_s: float = BUSY_S,
        consent: ConsentMode = "asked",
    ) -> None:
        if pin is not None:
            _require_pin(survey, pin)
        allowed = math.inf if max_eps is None else real("max_eps", max_eps, 0, MAX_EPS)
        required = [public_keys(keys) for keys in (signed_by, also_signed_by) if keys is not None]
        if signed_by is None and (signature is not None or required):
            raise ValueError("signature and also_signed_by need signed_by: without a public key no signature is checked")
        if len(required) == 2 and set(required[0]) & set(required[1]):
            raise ValueError("also_signed_by must name other keys than signed_by, since one signature would be enough")
        try:
            for keys in required:
                require_signature(survey, signature, keys)
        except SignatureError as error:
            raise NotSigned(str(error)) from None
        self.survey, self._cohort = survey, survey.cohort_index(cohort)
        # the service accepts the current step, late steps within `lateness_steps`, and the next step because of clock skew
        self._n_kept = survey.lateness_steps + 2
        try:
            self._randomizers = [
                [m.randomizer(p) for m, p in zip(mechanisms, parameters, strict=True)]
                for mechanisms, parameters in zip(survey.mechanisms, survey.device_survey.mechanisms, strict=True)
            ]
        except TypeError as error:
            raise UnknownSurvey(f"{survey.name}: {error}") from None
        chosen = self._level_indices(levels or {})
        self._levels = [chosen.get(a, 0) for a in range(len(survey.attributes))]
        self._consents = Consents(survey, consent)
        if isinstance(path, (str, Path)):
            lazy = not expect_enrolled and (consent == "asked" or self._consents.off)
            wait_s = real("wait_s", wait_s, 0, DAY_S)
            self._file = SQLiteFile(Path(path), DEVICE, TABLES, not expect_enrolled, wait_s, lazy=lazy)
        else:
            self._file = path.file
        with self._transaction() as memory:
            if expect_enrolled and memory.consent() is None:
                self._require_this_survey(memory)
            muted = self._muted(memory, fresh=not expect_enrolled)
            if memory.enrolled():
                self._require_same_levels(memory, chosen)
                self._levels[:] = [memory.enrolment(a).level for a in range(len(survey.attributes))]
            self._require_at_most(allowed, self._levels)
            if not memory.enrolled():
                memory.require_room(self._levels)
                if len(muted) < len(survey.attributes):
                    self._enroll(memory)

    def __repr__(self) -> str:
        return "<Device>"

    def answer(self, values: Mapping[str, str | float | Sequence[str | float]], step: int | None = None) -> dict[str, bytes]:
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

    # ---- enrolment

    def _choices(self, chosen: list[int]) -> list[Enrolment]:
        n = len(self.survey.attributes)
        collection, sampled = self.survey.collection, self._random.below(n)
        choices = []
        for a, levels in enumerate(self._randomizers):
            level = chosen[a]
            p = levels[level].parameters
            answers = collection != "smp" or a == sampled
            fake = self._random.below(p.k) if collection == "rs+fd" and a != sampled else -1
            function = levels[level].enroll(self._random)
            choices.append(Enrolment(level, answers, function, fake, self._random.below(p.every_steps)))
        return choices

    def _level_indices(self, levels: Mapping[str, str]) -> dict[int, int]:
        indices = {}
        for attribute, level in levels.items():
            a = self.survey.index(attribute)
            names = [choice.name for choice in self.survey.attributes[a].levels]
            if level not in names:
                raise ValueError(f"the level of {attribute} must be one of {', '.join(names)}, got {level!r}")
            indices[a] = names.index(level)
        return indices

    def _require_at_most(self, allowed: float, levels: list[int]) -> None:
        asked = largest_loss(self.survey, levels)
        if asked > allowed + TOLERANCE:
            raise CostlySurvey(self.survey.name, asked, allowed)

    def _require_same_levels(self, memory: Transaction, chosen: dict[int, int]) -> None:
        for a, level in chosen.items():
            attribute, kept = self.survey.attributes[a], memory.enrolment(a).level
            if kept != level:
                raise DeviceError(
                    f"{self._file.path}: the level of {attribute.name} is permanently {attribute.levels[kept].name}, got"
                    f" {attribute.levels[level].name}; a second level would need a second privacy budget"
                )


def _closest(calculate: Callable[[], float], bound: float) -> float:
    """Returns a loss; the bound if a package for its calculation is missing."""
    try:
        return calculate()
    except ModuleNotFoundError:
        return bound


def _require_pin(survey: Survey, pin: str) -> None:
    if re.fullmatch("[0-9a-f]{64}", pin) is None:
        raise ValueError(f"pin must have 64 lower-case hexadecimal digits, as `ldpstream check` prints it, got {pin[:80]!r}")
    if pin != survey.pin:
        raise WrongSurvey(f"{survey.name}: the survey has the pin {survey.pin}, expected {pin}")


def _finished(memory: Transaction, a: int, p: Parameters) -> bool:
    return p.lifetime_reports is not None and memory.counts(a)[0] >= p.lifetime_reports


def index_of(survey: Survey, attribute: str, value: Any) -> int:
    """Returns the index of a value; for an attribute with `choices`, the code of a set.

    Raises:
        ValueError: if there is no such attribute, or a device refuses the value.
    """
    members = survey.members(a := survey.index(attribute))
    if members is None:
        asked = survey.attributes[a]
        return value_index(asked, value) if asked.most is None else _set_code(asked, value)
    first, second = (survey.attributes[member] for member in members)
    if not isinstance(value, (list, tuple)) or len(value) != 2:
        raise ValueError(f"{attribute} is a pair: its value must be a list with the values of {first.name} and {second.name}")
    return value_index(first, value[0]) * second.k + value_index(second, value[1])


def _set_code(attribute: Attribute, given: Any) -> int:
    if not isinstance(given, (list, tuple, set, frozenset)):
        raise ValueError(f"{attribute.name} has several answers: its value must be a list of values")
    return attribute.set_code([_find(attribute, value) for value in given])


def value_index(attribute: Attribute, value: Any) -> int:
    """Returns the index of a value of an attribute that is no pair and has no `choices`."""
    return _find(attribute, value)[0]


def _find(attribute: Attribute, value: Any) -> tuple[int, bool]:
    try:
        if isinstance(value, str):
            return attribute.find(value)
        if isinstance(value, Real) and not isinstance(value, bool):
            number = int(value) if isinstance(value, Integral) else float(value)
            if attribute.values is None:
                found = attribute.of_number(number)
            else:
                found = (int(number), True) if number % 1 == 0 and 0 <= number < len(attribute.values) else None
            if found is not None:
                return int(found[0]), found[1]
    except (ValueError, OverflowError):
        pass  # the error's text or a chained exception could show the value
    raise ValueError(f"not a value of the attribute {attribute.name} ({attribute.domain})")
