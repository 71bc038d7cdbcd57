"""The rules that every call of a device must keep, and the reports of the calls.

One violation shows a fault of the device.
"""

import base64
import binascii
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from devices.conformance.calls import Call
from lab.audit.events import events
from ldpstream.mechanisms import Reports
from ldpstream.mechanisms.arguments import IntArray
from ldpstream.mechanisms.wording import plural
from ldpstream.surveys import Rejected, Survey, check_envelope

IDEMPOTENCY_KEY_BYTES = 16
LINKED_BYTES = 8  # two keys must differ in these first bytes


@dataclass(slots=True)
class Fault:
    """A broken rule.

    Attributes:
        place: the first violation: file and line of a call, the device, or the request.
    """

    rule: str
    place: str
    times: int = 1

    def __str__(self) -> str:
        return f"{self.place}: {self.rule}" + (f" (and {self.times - 1} more)" if self.times > 1 else "")


class Faults:
    """Broken rules, each with its first place."""

    def __init__(self) -> None:
        self._found: dict[str, Fault] = {}

    def add(self, rule: str, place: str) -> None:
        if rule in self._found:
            self._found[rule].times += 1
        else:
            self._found[rule] = Fault(rule, place)

    def all(self) -> list[Fault]:
        return list(self._found.values())


@dataclass(frozen=True, slots=True)
class Rows:
    """Reports of one attribute and level, one of each device and step, in the order of the calls.

    Attributes:
        rows: (n,) reports, rows of the mechanism's `report_dtype`.
    """

    devices: IntArray
    values: IntArray
    steps: IntArray
    rows: Reports


@dataclass(slots=True)
class _Asked:
    chosen: int  # the level that the program chose
    value: int  # value of the first call
    level: int = -1
    steps: dict[int, tuple[bytes | None, str | None]] = field(default_factory=dict)
    reported: list[int] = field(default_factory=list)
    function: int | None = None
    answered: bool = False
    silent: list[tuple[int, str, int]] = field(default_factory=list)  # step, place, reports made before it


@dataclass(slots=True)
class CheckedCalls:
    """All calls, checked.

    Attributes:
        rows: the accepted reports, by attribute and level.
        keys: (n, 16) uint8, the well-formed keys of the envelopes, without those that repeat the first 8 bytes.
        key_calls: (n, 3) device, attribute and value of each key's envelope.
        sampled: (n, 2) device and the attribute that it answers, under smp, if the calls show this attribute.
        phases: for each attribute and level with `every_steps` > 1, (n, 2) device and its phase, if the calls show it.
        values: (devices, attributes) value of the first call; -1 without a call.
        twins: (n, 2) devices of the first two runs of one device.
    """

    calls: int
    faults: list[Fault]
    rows: dict[tuple[int, int], Rows]
    keys: Reports
    key_calls: IntArray
    sampled: IntArray
    phases: dict[tuple[int, int], IntArray]
    values: IntArray
    twins: IntArray


class _Rules:
    def __init__(self, survey: Survey) -> None:
        self.survey, self.calls = survey, 0
        self.faults = Faults()
        self.numbers: dict[tuple[str | int, int], int] = {}
        self.asked: dict[tuple[int, int], _Asked] = {}
        self.kept: dict[tuple[int, int], list[tuple[int, int, int]]] = {}
        self.payloads: dict[tuple[int, int], list[bytes]] = {}
        self.keys: dict[bytes, tuple[int, int, int]] = {}
        self.linked: set[bytes] = set()

    def see(self, call: Call) -> None:
        self.calls += 1
        device = self.numbers.setdefault((call.device, call.run), len(self.numbers))
        asked = self.asked.setdefault((device, call.attribute), _Asked(call.level, call.value))
        if call.step in asked.steps:
            if asked.steps[call.step] != (call.envelope, call.key):
                self.faults.add("a repeated call for a step must return the same envelope and key", call.place)
            return
        asked.steps[call.step] = call.envelope, call.key
        if call.envelope is None:
            asked.silent.append((call.step, call.place, len(asked.reported)))
            return
        assert call.key is not None
        asked.answered = True
        key = read_key(call.key)
        if key is None:
            self.faults.add("a key must be 16 bytes, as 22 letters of base64url without padding", call.place)
        elif key[:LINKED_BYTES] in self.linked:
            self.faults.add("a key, or its first 8 bytes, belongs to another envelope", call.place)
        else:
            self.linked.add(key[:LINKED_BYTES])
            self.keys[key] = device, call.attribute, call.value
        try:
            envelope = check_envelope(self.survey, call.envelope, self.survey.opens_ms(call.step))
        except Rejected as rejected:
            self.faults.add(f"the service would reject the envelope: {rejected.reason}", call.place)
            return
        if (envelope.attribute, envelope.step) != (call.attribute, call.step):
            self.faults.add("the envelope has another attribute or step than the call", call.place)
        elif envelope.level != call.level:
            self.faults.add("the envelope has another level than the program chose", call.place)
        elif envelope.cohort != call.cohort:
            self.faults.add("the envelope has another cohort than the program chose", call.place)
        elif envelope.n != 1:
            self.faults.add("an envelope of a device must have one report", call.place)
        else:
            self._keep(call, device, asked, envelope.level, envelope.payload)

    def _keep(self, call: Call, device: int, asked: _Asked, level: int, payload: bytes) -> None:
        m = self.survey.mechanisms[call.attribute][level].device
        if asked.level not in (-1, level):
            self.faults.add("a device must keep its level of an attribute", call.place)
            return
        asked.level = level
        hashed = events(m).functions(np.frombuffer(payload, m.report_dtype)) if m.n_enrolments > 1 else None
        if hashed is not None:
            function = int(hashed[0][0])
            if asked.function not in (None, function):
                self.faults.add("a device must keep its hash function", call.place)
            asked.function = function
        if m.every_steps > 1 and asked.reported and (call.step - asked.reported[0]) % m.every_steps:
            self.faults.add(
                f"the steps of a device's reports must differ by multiples of every_steps = {m.every_steps}", call.place
            )
        asked.reported.append(call.step)
        if m.lifetime_reports is not None and len(asked.reported) > m.lifetime_reports:
            self.faults.add(f"a device must make at most {plural(m.lifetime_reports, 'report')} (lifetime_reports)", call.place)
        self.kept.setdefault((call.attribute, level), []).append((device, call.value, call.step))
        self.payloads.setdefault((call.attribute, level), []).append(payload)

    # ---- after the last call

    def observed(self) -> CheckedCalls:
        self._silence()
        sampled = self._sampled()
        rows = {}
        for pane, kept in self.kept.items():
            dtype = self.survey.mechanisms[pane[0]][pane[1]].report_dtype
            array = np.array(kept, np.int64)
            joined = np.frombuffer(b"".join(self.payloads[pane]), dtype.base).reshape(-1, *dtype.shape)
            rows[pane] = Rows(array[:, 0], array[:, 1], array[:, 2], joined)
        keys = np.frombuffer(b"".join(self.keys), np.uint8).reshape(-1, IDEMPOTENCY_KEY_BYTES)
        key_calls = np.array(list(self.keys.values()), np.int64).reshape(-1, 3)
        phases, values, twins = self._phases(), self._values(), self._twins()
        return CheckedCalls(self.calls, self.faults.all(), rows, keys, key_calls, sampled, phases, values, twins)

    def _values(self) -> IntArray:
        values = np.full((len(self.numbers), len(self.survey.attributes)), -1, np.int64)
        for place, asked in self.asked.items():
            values[place] = asked.value
        return values

    def _twins(self) -> IntArray:
        runs: dict[str | int, list[int]] = {}
        for (name, _), number in self.numbers.items():
            runs.setdefault(name, []).append(number)
        return np.array([numbers[:2] for numbers in runs.values() if len(numbers) > 1], np.int64).reshape(-1, 2)

    def _whole_cycle(self, device: int, attribute: int) -> bool:
        asked = self.asked.get((device, attribute))
        if asked is None:
            return False
        width = self.survey.mechanisms[attribute][asked.chosen].every_steps
        return len({step % width for step in asked.steps if not self.survey.ended(step)}) == width

    def _silence(self) -> None:
        for (device, attribute), asked in self.asked.items():
            if not asked.reported:
                if self.survey.collection != "smp" and asked.silent and self._whole_cycle(device, attribute):
                    self.faults.add("a device must answer every attribute", asked.silent[0][1])
                continue
            m = self.survey.mechanisms[attribute][asked.level].device
            phase = asked.reported[0] % m.every_steps
            for step, place, made in asked.silent:
                finished = m.lifetime_reports is not None and made >= m.lifetime_reports
                if step % m.every_steps == phase and not finished and not self.survey.ended(step):
                    self.faults.add("a device made no report at a step at which it reports", place)

    def _sampled(self) -> IntArray:
        if self.survey.collection != "smp":
            return np.zeros((0, 2), np.int64)
        found, everything = [], range(len(self.survey.attributes))
        for (name, _), device in self.numbers.items():
            answered = [a for a in everything if (asked := self.asked.get((device, a))) and asked.answered]
            if len(answered) > 1:
                self.faults.add("under smp a device must answer only one attribute", f"device {name}")
            elif all(self._whole_cycle(device, a) for a in everything):
                if answered:
                    found.append((device, answered[0]))
                else:
                    self.faults.add("under smp a device must answer one attribute", f"device {name}")
        return np.array(found, np.int64).reshape(-1, 2)

    def _phases(self) -> dict[tuple[int, int], IntArray]:
        found: dict[tuple[int, int], list[tuple[int, int]]] = {}
        for (device, attribute), asked in self.asked.items():
            if asked.reported and self._whole_cycle(device, attribute):
                width = self.survey.mechanisms[attribute][asked.chosen].every_steps
                if width > 1:
                    found.setdefault((attribute, asked.chosen), []).append((device, asked.reported[0] % width))
        return {pane: np.array(phases, np.int64) for pane, phases in found.items()}


def check_rules(survey: Survey, calls: Iterable[Call]) -> CheckedCalls:
    rules = _Rules(survey)
    for call in calls:
        rules.see(call)
    return rules.observed()


def read_key(text: str) -> bytes | None:
    """The bytes of a key; None if the text is not the canonical form of 16 bytes."""
    try:
        key = base64.urlsafe_b64decode(text + "==")
    except (ValueError, binascii.Error):
        return None
    return key if len(key) == IDEMPOTENCY_KEY_BYTES and base64.urlsafe_b64encode(key).rstrip(b"=").decode() == text else None
