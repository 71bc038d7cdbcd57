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
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ldpstream.device.claims import largest_loss
from ldpstream.device.consent.consent import Consent, ConsentMode, Consents
from ldpstream.device.consent.preview import Preview
from ldpstream.device.consent.words import question
from ldpstream.device.errors import CostlySurvey, DeviceError, NotSigned, StepForgotten, UnknownSurvey, WrongSurvey
from ldpstream.device.files.memo_file import TABLES, Enrolment, Left, Transaction
from ldpstream.device.files.sqlite_file import BUSY_S, DAY_S, DEVICE, SQLiteFile
from ldpstream.device.reports import Reports, Values
from ldpstream.mechanisms.arguments import real
from ldpstream.surveys import Survey
from ldpstream.surveys.signatures import SignatureError, public_keys, require_signature

if TYPE_CHECKING:
    from ldpstream.device.wallet import Wallet

MAX_EPS = 1e9  # nats
TOLERANCE = 1e-9  # nats; for the rounding of the split budgets


class _NotKept(Exception):
    """Undoes a transaction whose outcome is only for show."""


class Device(Reports):
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
        wait_s: how long a call waits for another transaction on the file, in seconds, in [0, 86 400]; a wallet has its own.
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
        with self._transaction(create=consent != "asked" and not self._consents.off) as memory:
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

    # ---- consent

    def question(self) -> str:
        """Returns the text by which the application asks for consent, as plain text in several lines (`consent.words`)."""
        return question(self.survey, self._levels)

    def consent(self, attribute: str | None = None) -> Consent:
        """Returns the person's consent to an attribute.

        By default to the survey: "unknown" if an attribute's consent is unknown, else "given" if one is given.

        Raises:
            ValueError: if there is no such attribute.
            DeviceError: as for `report`.
        """
        with self._transaction() as memory:
            self._muted(memory)
            states = self._consents.states(memory)
        if attribute is not None:
            return states[self._consents.names[self.survey.index(attribute)]]
        found = set(states.values())
        return "unknown" if "unknown" in found else "given" if "given" in found else "withdrawn"

    def to_ask(self) -> list[str]:
        """Returns the attributes about which the application has to ask the person; none while devices are switched off.

        A new purpose or owner, or a longer storage than the person agreed to, makes a consent unknown again.
        """
        if self._consents.off:
            return []
        with self._transaction() as memory:
            self._muted(memory)
            return [name for name, state in self._consents.states(memory).items() if state == "unknown"]

    def give_consent(self, *attributes: str) -> None:
        """Keeps the person's consent to some attributes, by default to all. Enrolls the device permanently.

        While devices are switched off, it does nothing. After a withdrawal the device enrolls again, with a fresh budget.

        Raises:
            ValueError: if there is no such attribute.
            WalletFull: if the survey does not fit the wallet's budget. Nothing is kept.
            StoreHeld, StoreFull, WrongSurvey, DeviceError: as for the constructor.
        """
        names = [self.survey.attributes[self.survey.index(name)].name for name in attributes] or self._consents.names
        if self._consents.off:
            return
        with self._transaction(create=True) as memory:
            self._muted(memory, fresh=True)
            if not memory.enrolled():
                self._enroll(memory)
            self._consents.keep(memory, "given", names)
        self._consents.stopped.difference_update(names)

    def withdraw_consent(self, *attributes: str) -> None:
        """Withdraws the consent to some attributes, by default to all; before any consent, keeps that the person refused.

        Nothing more is sent: the device drops the waiting reports. It keeps nothing but the withdrawal, and sends no event. If
        consent to other attributes remains, the device also keeps the choices of its enrolment and which steps it reported.

        Raises:
            ValueError: if there is no such attribute.
            DeviceError: as for `report`. The file may keep the consent then, but this object sends nothing more.
        """
        names = [self.survey.attributes[self.survey.index(name)].name for name in attributes] or self._consents.names
        self._consents.stopped.update(names)
        with self._transaction(create=True) as memory:
            self._muted(memory, fresh=True)
            if self._consents.keep(memory, "withdrawn", names):
                memory.erase()
            elif memory.enrolled():
                for name in names:
                    memory.withdraw(self.survey.index(name), name)
        self._consents.stopped.difference_update(names)

    def forget(self, *, confirm: str) -> None:
        """Erases memos, enrolment, envelopes, counts, consent and journal permanently. The next consent enrolls again.

        SQLite overwrites the file's pages but deletes its rollback journal, so free disk space may hold old pages. The losses
        of earlier reports remain: those of new reports add to them.

        Args:
            confirm: the survey's name, to prevent erasing by mistake.

        Raises:
            ValueError: if `confirm` differs from the survey's name. Nothing is erased.
            DeviceError: as for `report`.
        """
        if confirm != self.survey.name:
            raise ValueError(f"confirm must be the survey's name, {self.survey.name}, got {confirm!r}")
        with self._transaction() as memory:
            self._muted(memory)
            memory.forget()

    def leaves(self, key: str, attribute: str, *, local: bool = False) -> bool:
        """Writes a report into the journal. A sender calls this before each attempt, and sends nothing if the result is false.

        Args:
            local: true if the report leaves only for show (`sender.LOCAL`).

        Returns:
            False if consent was withdrawn, devices are switched off, or the report does not wait any more.

        Raises:
            DeviceError: as for `report`.
        """
        with self._transaction() as memory:
            if attribute in self._muted(memory):
                return False
            return memory.leaves(key, time.time_ns() // 1_000_000, attribute, local)

    def preview(self, values: Values, step: int | None = None) -> list[Preview]:
        """Returns what `answer` would make and send now, and what each part can reveal. Keeps nothing, and sends nothing.

        It also shows the reports of a person who has not consented yet. A report that is not made yet is an example.

        Raises:
            ValueError, StepForgotten, ClockWentBack, DeviceError: as for `answer`.
            WalletFull: before the enrolment, if the survey does not fit the wallet's budget.
        """
        indices = self._indices(values)
        too_old, step = self._at(step)
        with suppress(_NotKept), self._transaction() as memory:
            muted, fresh = self._muted(memory, fresh=True), not memory.enrolled()
            waiting = set[tuple[int, int]]() if fresh else {(a, row[0]) for a, row in memory.waiting()}
            if fresh:
                shown = [replace(c, answers=True) for c in self._choices(self._levels)]
                memory.enroll(self._levels, shown)
            found = list[Preview]()
            for a, index in indices:
                name, envelope = self.survey.attributes[a].name, None
                silence: str | None = None if fresh else self._own_silence(memory, a, step)
                example = memory.sent(a, step) is None
                with suppress(*([StepForgotten] if name in muted else [])):
                    envelope = None if silence else self._report_of(memory, a, index, step, too_old)
                if envelope and not example and (a, step) not in waiting:
                    silence = "already answered"
                found.append(Preview(self.survey, name, step, muted.get(name) or silence, example, envelope))
            raise _NotKept
        return found

    def journal(self) -> list[Left]:
        """Returns the last reports that left this device or may have left it, the latest last (`consent.journal`).

        Raises:
            DeviceError: as for `report`.
        """
        with self._transaction() as memory:
            self._muted(memory)
            return memory.journal()

    # ---- enrolment

    def _enroll(self, memory: Transaction) -> None:
        memory.enroll(self._levels, self._choices(self._levels))

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


def _require_pin(survey: Survey, pin: str) -> None:
    if re.fullmatch("[0-9a-f]{64}", pin) is None:
        raise ValueError(f"pin must have 64 lower-case hexadecimal digits, as `ldpstream check` prints it, got {pin[:80]!r}")
    if pin != survey.pin:
        raise WrongSurvey(f"{survey.name}: the survey has the pin {survey.pin}, expected {pin}")
