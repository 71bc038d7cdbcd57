"""The device: one person's client for their true value, for an application to embed.

    device = Device(load_survey("commute.toml"), folder)      # enrols at the first use, for ever
    device.report("mode", "bicycle", step)                    # None where this device is not asked
    for report in device.waiting():                           # also those from before a restart
        if post(report.envelope, report.key):                 # as often as it takes: the key makes all attempts count once
            device.settle(report)

Each report is one transaction of `producers.device.memo_file`: look for an envelope of the step; if there is none, recall the
memo or draw it, draw the report from it, enter it in the books, keep the envelope, commit. Only then is it returned. Hence

1. no report leaves before its memo is on the disk, and a memo key never has a second memo;
2. a step has one report, whatever is asked twice, killed or run in two processes: the same bytes come back, or a refusal;
3. the books (`Device.spent`) hold every report that may have left;
4. an envelope has one idempotency key, drawn and kept with it, so no attempt ever goes out under a second one.

A true value never stands in an error message, a `repr` or a log; the file holds it all the same: see docs/device.md.
"""

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Integral, Real
from pathlib import Path
from typing import Any

import numpy as np

from mechanisms import Longitudinal, Reports
from mechanisms.arguments import integer
from producers.device import secure_random
from producers.device.memo_file import DeviceError, Enrolment, MemoFile, Transaction
from producers.device.secure_random import SecureRandom
from surveys import Attribute, Survey
from surveys.envelope import seal

MAX_STEP = 2**62


class StepForgotten(DeviceError):
    """A step so old that its envelope is no longer kept: whether it was reported is not known, so it is not reported.

    Attributes:
        attribute: name of the attribute.
        step: that was asked for.
        earliest: the earliest step that can still be reported for the first time.
    """

    def __init__(self, attribute: str, step: int, earliest: int) -> None:
        super().__init__(f"step {step} of {attribute} is no longer remembered; the earliest to report is {earliest}")
        self.attribute, self.step, self.earliest = attribute, step, earliest


@dataclass(frozen=True, slots=True)
class Spent:
    """What a device's reports of one attribute have cost, in nats. It tells something of the values: keep it on the device.

    Attributes:
        reports: t, distinct steps reported.
        eps_t: bound of the loss against any value that never changed, if all reports come from one memo or the mechanism has no
            memo; else None. An observer who also considers changes can learn more: see `eps_sequence`.
        eps_sequence: bound of the loss against any other value sequence. It holds whatever this device's values did.
    """

    reports: int
    eps_t: float | None
    eps_sequence: float


@dataclass(frozen=True, slots=True, repr=False)
class Waiting:
    """A report that may need another attempt.

    Attributes:
        attribute: name of the attribute.
        step: time step.
        envelope: bytes to post.
        key: their `Idempotency-Key`, the same at every call: 22 letters, digits, ``-`` and ``_``, 128 random bits.
    """

    attribute: str
    step: int
    envelope: bytes
    key: str


class Device:
    """A person's device, which answers a survey with sanitized reports.

    Randomness is the operating system's. Several devices, processes or threads may share one file: they are one device.

    Args:
        survey: the survey. The file belongs to it: another one is refused.
        path: of the device's file, or an existing folder, in which the file is named after the survey.
        levels: for each attribute's name the name of the level that the participant chose, the first level where left out.
            Chosen at the first use and kept for ever, since a second level would be a second budget.

    Raises:
        ValueError: if `levels` names an attribute or level that the survey doesn't have.
        DeviceError: if the file cannot be used, is of another survey, or holds another choice of levels.
    """

    def __init__(self, survey: Survey, path: str | Path, levels: Mapping[str, str] | None = None) -> None:
        self._survey = survey
        self._random = SecureRandom()
        self._indices = {attribute.name: i for i, attribute in enumerate(survey.attributes)}
        chosen = self._level_indices(levels or {})
        path = Path(path)
        self._path = path / f"{survey.name}.device" if path.is_dir() else path
        self._file = MemoFile(self._path)
        with self._file.transaction() as memory:
            if memory.fingerprint() is None:
                memory.enrol(survey.fingerprint, self._choices(chosen))
            else:
                self._require_this_survey(memory)
                self._require_same_levels(memory, chosen)

    def __repr__(self) -> str:
        return "<Device>"

    def report(self, attribute: str, value: str | float, step: int) -> bytes | None:
        """The envelope with this device's report of a value at a step; None if the device doesn't answer the attribute.

        The first call for a step decides. Every later one returns the same bytes, whatever the value, while the step is
        among the last `lateness_steps` + 2 reported. One that is older costs nothing either: it is refused.

        Args:
            attribute: name of the attribute.
            value: a text as the survey writes it, or a number: the index of one of the survey's `values`, an integer below
                the `size`, or a number within the `bins`.
            step: time step, in [0, 2^62].

        Raises:
            ValueError: if there is no such attribute or step, or the value is not in the domain. The message doesn't show it.
            StepForgotten: if the step is older than what is remembered.
            DeviceError: if the file is missing, damaged, locked for a minute, full, or of another survey. Nothing has
                left then.
        """
        a = self._index(attribute)
        integer("step", step, 0, MAX_STEP)
        index = _value_index(self._survey.attributes[a], value)
        with self._file.transaction() as memory:
            self._require_this_survey(memory)
            enrolment = memory.enrolment(a)
            if not enrolment.answers:
                return None
            envelope = memory.sent(a, step)
            if envelope is None:
                envelope = self._first_report(memory, a, enrolment, index, step)
        return envelope

    def waiting(self) -> list[Waiting]:
        """The reports that are not settled, in the order of their steps; among the last `lateness_steps` + 2 of an attribute.

        An older report is too late for the service, so it needs no attempt.

        Raises:
            DeviceError: if the file is missing, damaged or of another survey.
        """
        with self._file.transaction() as memory:
            self._require_this_survey(memory)
            rows = memory.waiting()
        return [Waiting(self._survey.attributes[a].name, step, envelope, key) for a, step, envelope, key in rows]

    def settle(self, report: Waiting) -> None:
        """Note that a report needs no further attempt: the log has it, or it will never count. May be called again.

        Raises:
            DeviceError: if the file is missing, damaged or of another survey.
        """
        with self._file.transaction() as memory:
            self._require_this_survey(memory)
            memory.settle(report.key)

    def spent(self, attribute: str) -> Spent:
        """What the reports of an attribute have cost so far. Under spl the attributes' losses add up; under
        rs+fd all attributes together cost what the dearest of them would.

        Raises:
            ValueError: if there is no such attribute.
            DeviceError: if the file is missing, damaged or of another survey.
        """
        a = self._index(attribute)
        with self._file.transaction() as memory:
            self._require_this_survey(memory)
            m = self._survey.mechanisms[a][memory.enrolment(a).level].device
            t, memos = memory.counts(a)
        if t == 0:
            return Spent(0, 0.0, 0.0)
        return Spent(t, m.eps_t(t) if memos <= 1 else None, m.eps_sequence(t).value)

    def forget(self, *, confirm: str) -> None:
        """Erase memos, enrolment, envelopes and books, for ever. The next `Device` on the file enrols afresh.

        The file's pages are overwritten, but not the rollback journal that SQLite deletes: on the disk's free space old pages
        may remain. What was spent stays spent: whoever answers again spends a fresh ε∞ on top of it.

        Args:
            confirm: the survey's name, to say that this is meant.

        Raises:
            ValueError: if `confirm` is something else; nothing is erased.
            DeviceError: if the file is missing, damaged or of another survey.
        """
        if confirm != self._survey.name:
            raise ValueError(f"confirm must be the survey's name, {self._survey.name}, got {confirm!r}")
        with self._file.transaction() as memory:
            self._require_this_survey(memory)
            memory.forget()

    # ---- a report

    def _first_report(self, memory: Transaction, a: int, enrolment: Enrolment, index: int, step: int) -> bytes:
        """Make the only report of a step and keep it."""
        forgotten = memory.forgotten(a)
        if step <= forgotten:
            raise StepForgotten(self._survey.attributes[a].name, step, forgotten + 1)
        m = self._survey.mechanisms[a][enrolment.level].device
        index = index if enrolment.fake < 0 else enrolment.fake
        key = None
        if isinstance(m, Longitudinal):
            key = secure_random.memo_key(m, index, enrolment.function)
            memo = self._recall(memory, m, a, key, enrolment.function)
            reports = secure_random.report_memo(m, memo, self._random)
        else:
            reports = secure_random.report_once(m, index, self._random)
        envelope = seal(self._survey, a, enrolment.level, step, reports)
        # all steps that the service still takes: the current one, the late ones, and one ahead by the clock's skew
        memory.keep(a, step, envelope, key, self._survey.lateness_steps + 2, secrets.token_urlsafe(16))
        return envelope

    def _recall(self, memory: Transaction, m: Longitudinal, a: int, key: int, function: int) -> Reports:
        """The memo of a key, drawn if there is none."""
        raw = memory.memo(a, key, lambda: secure_random.memoize(m, key, function, self._random).tobytes())
        if len(raw) == m.report_dtype.itemsize:
            rows: Reports = np.frombuffer(raw, m.report_dtype.base).reshape(1, *m.report_dtype.shape)
            if m.valid(rows).all():
                return rows
        raise DeviceError(f"{self._path}: holds something else than a memo of {self._survey.attributes[a].name}")

    # ---- enrolment

    def _choices(self, chosen: dict[int, int]) -> list[Enrolment]:
        """What a device chooses at its first use."""
        n = len(self._survey.attributes)
        collection, sampled = self._survey.collection, self._random.below(n)
        choices = []
        for a, mechanisms in enumerate(self._survey.mechanisms):
            level = chosen.get(a, 0)
            m = mechanisms[level].device
            answers = collection != "smp" or a == sampled
            fake = self._random.below(m.k) if collection == "rs+fd" and a != sampled else -1
            choices.append(Enrolment(level, answers, secure_random.enroll(m, self._random), fake))
        return choices

    def _level_indices(self, levels: Mapping[str, str]) -> dict[int, int]:
        """Names as indices."""
        indices = {}
        for attribute, level in levels.items():
            a = self._index(attribute)
            names = [choice.name for choice in self._survey.attributes[a].levels]
            if level not in names:
                raise ValueError(f"the level of {attribute} must be one of {', '.join(names)}, got {level!r}")
            indices[a] = names.index(level)
        return indices

    def _require_this_survey(self, memory: Transaction) -> None:
        kept = memory.fingerprint()
        if kept is None:
            raise DeviceError(f"{self._path}: holds no enrolment, it was forgotten; a new Device enrols afresh")
        if kept != self._survey.fingerprint:
            raise DeviceError(
                f"{self._path}: belongs to a survey with fingerprint {kept.hex()}, not to {self._survey.name}"
                f" with {self._survey.fingerprint.hex()}; another survey needs a file, and a budget, of its own"
            )

    def _require_same_levels(self, memory: Transaction, chosen: dict[int, int]) -> None:
        for a, level in chosen.items():
            attribute, kept = self._survey.attributes[a], memory.enrolment(a).level
            if kept != level:
                raise DeviceError(
                    f"{self._path}: the level of {attribute.name} is {attribute.levels[kept].name} for ever, got"
                    f" {attribute.levels[level].name}; a second level would be a second budget"
                )

    def _index(self, attribute: str) -> int:
        if attribute not in self._indices:
            raise ValueError(f"attribute must be one of {', '.join(self._indices)}, got {attribute!r}")
        return self._indices[attribute]


def _value_index(attribute: Attribute, value: Any) -> int:
    """The index of a value given as a text or a number; see `Device.report`.

    Raises:
        ValueError: if it is not in the domain; the message names the attribute and the domain only.
    """
    try:
        if isinstance(value, str):
            return attribute.index(value)
        if isinstance(value, Real) and not isinstance(value, (bool, np.bool_)):
            if attribute.bins is not None:
                return attribute.index(repr(float(value)))
            if isinstance(value, Integral) and 0 <= int(value) < attribute.k:
                return int(value)
    except (ValueError, OverflowError):
        pass  # its text may show the value, and so may the chain of exceptions
    raise ValueError(f"not a value of the attribute {attribute.name} ({attribute.domain})")
