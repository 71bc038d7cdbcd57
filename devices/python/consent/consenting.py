"""The part of a device that asks the person: consent."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace

from ldpstream.device.consent.consent import Consent, Consents, NoConsent
from ldpstream.device.consent.preview import Preview
from ldpstream.device.consent.words import question
from ldpstream.device.errors import StepForgotten, StoreCleared, WrongSurvey
from ldpstream.device.files.memo_file import Enrolment, Left, Transaction
from ldpstream.device.files.sqlite_file import SQLiteFile
from ldpstream.surveys import Survey

Values = Mapping[str, str | float | Sequence[str | float]]


class _NotKept(Exception):
    """Undoes a transaction whose outcome is only for show."""


class Consenting:
    """A device without its reports. `Device` is the only subclass."""

    survey: Survey
    _file: SQLiteFile
    _levels: list[int]
    _consents: Consents
    _choices: Callable[[list[int]], list[Enrolment]]
    _indices: Callable[[Values], list[tuple[int, int]]]
    _at: Callable[[int | None], tuple[type[StepForgotten], int]]
    _own_silence: Callable[[Transaction, int, int], str | None]
    _report_of: Callable[[Transaction, int, int, int, type[StepForgotten]], bytes]

    @contextmanager
    def _transaction(self, create: bool = False) -> Iterator[Transaction]:
        with self._file.connection(create) as connection:
            yield Transaction(connection, self._file, self.survey)

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
                silence = None if fresh else self._own_silence(memory, a, step)
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

    def _enroll(self, memory: Transaction) -> None:
        memory.enroll(self._levels, self._choices(self._levels))

    def _require_this_survey(self, memory: Transaction) -> None:
        kept = memory.pin()
        if kept is None:
            raise StoreCleared(f"{self._file.path}: the enrolment was erased; make a new Device to enroll again")
        if kept != self.survey.pin:
            raise WrongSurvey(
                f"{self._file.path}: belongs to the survey with the pin {kept}, not to {self.survey.name} with the pin"
                f" {self.survey.pin}; each survey needs its own file and its own budget"
            )
