"""Consent: the person's answer to the survey, and the switches that turn a device off.

The device's file keeps the answer by attribute, with the terms that the person agreed to. If the survey's purpose or owner
changes, or the service keeps the results longer, the consent is unknown, so the application asks again. A new version of a
survey, with another question or another loss, has another pin: it always asks. A switch turns everything off, whatever the
person answered:

- the environment variable ``DO_NOT_TRACK`` or ``CI``, unless it is empty, ``0``, ``false`` or ``no``;
- the operator's file `SWITCH_FILE`, for all programs of a machine.
"""

import os
from pathlib import Path
from typing import Final, Literal, get_args

import msgspec

from ldpstream.device.errors import DeviceError
from ldpstream.device.files.memo_file import Transaction
from ldpstream.surveys import Survey

Consent = Literal["unknown", "given", "withdrawn"]
ConsentMode = Literal["asked", "given", "simulated"]
NoConsent = Literal["switched off", "consent unknown", "consent withdrawn"]
SWITCHES: Final = ("DO_NOT_TRACK", "CI")
SWITCH_FILE: Final = Path(os.environ.get("PROGRAMDATA", "/etc")) / "ldpstream" / "off"


def switched_off() -> str | None:
    """Returns the switch that turns all devices off: a variable's name, or the path of the operator's file; None for no switch.

    A file that the device may not look for counts as present.
    """
    for name in SWITCHES:
        if os.environ.get(name, "").strip().lower() not in ("", "0", "false", "no"):
            return name
    try:
        os.stat(SWITCH_FILE)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError:
        pass
    return str(SWITCH_FILE)


class Answer(msgspec.Struct, frozen=True, omit_defaults=True):
    """A person's answer for one attribute, with the survey's texts and storage in seconds; without them after a withdrawal."""

    state: Literal["given", "withdrawn"]
    purpose: str | None = None
    owner: str | None = None
    kept_s: int = 0


_answers = msgspec.json.Decoder(dict[str, Answer])


class Consents:
    """The consent of one device.

    Args:
        mode: as `consent` of `Device`.

    Raises:
        ValueError: for another mode.
    """

    def __init__(self, survey: Survey, mode: ConsentMode) -> None:
        if mode not in get_args(ConsentMode):
            raise ValueError(f"consent must be one of {', '.join(get_args(ConsentMode))}, got {mode!r}")
        self._survey, self.mode = survey, mode
        self.names = [attribute.name for attribute in survey.attributes]
        self.stopped = set[str]()  # attributes that the person withdrew, until the file has the withdrawal
        self._now = Answer("given", survey.purpose, survey.owner, survey.retention_steps * survey.step_seconds)
        self._starts_off = switched_off() is not None  # such a device has no enrolment, and stays off

    @property
    def off(self) -> bool:
        return self.mode != "simulated" and (self._starts_off or switched_off() is not None)

    def _kept(self, memory: Transaction) -> dict[str, Answer]:
        kept = memory.consent()
        try:
            return {} if kept is None else _answers.decode(kept)
        except msgspec.DecodeError:
            raise DeviceError(f"the consent to {self._survey.name} is damaged") from None

    def states(self, memory: Transaction) -> dict[str, Consent]:
        """Returns the consent to each attribute.

        Raises:
            DeviceError: if the kept answers are damaged.
        """
        kept = self._kept(memory)
        return {name: self._state(name, kept.get(name)) for name in self.names}

    def _state(self, name: str, answer: Answer | None) -> Consent:
        if name in self.stopped or (answer is not None and answer.state == "withdrawn"):
            return "withdrawn"
        if self.mode != "asked":
            return "given"
        now = self._now
        same = answer is not None and (answer.purpose, answer.owner) == (now.purpose, now.owner)
        return "given" if same and answer is not None and now.kept_s <= answer.kept_s else "unknown"

    def muted(self, memory: Transaction) -> dict[str, NoConsent]:
        """Returns the attributes without consent, each with the reason of the silence."""
        if self.off:
            return dict.fromkeys(self.names, "switched off")
        reasons: dict[Consent, NoConsent] = {"unknown": "consent unknown", "withdrawn": "consent withdrawn"}
        return {name: reasons[state] for name, state in self.states(memory).items() if state != "given"}

    def keep(self, memory: Transaction, state: Literal["given", "withdrawn"], names: list[str]) -> bool:
        """Keeps the answer for some attributes. Returns true if the person has then withdrawn all attributes."""
        answers = self._kept(memory) | dict.fromkeys(names, self._now if state == "given" else Answer("withdrawn"))
        memory.keep_consent(msgspec.json.encode(answers).decode())
        return len(answers) == len(self.names) and all(answer.state == "withdrawn" for answer in answers.values())
