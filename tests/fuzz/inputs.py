"""Inputs for fuzzing the envelope: a survey with every kind of report, its sound envelopes, and mutated envelopes.

A second survey has the same questions and three cohorts. Each input is judged for one of the two surveys.
"""

import random
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import cache
from typing import NamedTuple

import msgspec
import numpy as np
from msgspec.structs import replace

from ldpstream.surveys import Cohort, Survey, parse_survey, seal

STEP = 7
SURVEY = parse_survey({
    "name": "fuzz", "start": datetime(2026, 1, 5, tzinfo=UTC), "step_seconds": 10, "window_steps": 3, "lateness_steps": 1,
    "ends": 10**9, "collection": "smp",
    "attribute": [
        {"name": "symbols", "size": 5, "level": [
            {"name": "once", "mechanism": "GRR", "eps": 1.0},
            {"name": "chain", "mechanism": "L-GRR", "eps_inf": 4.0, "eps_1": 2.0},
        ]},
        {"name": "wide", "size": 300, "level": [{"name": "once", "mechanism": "GRR", "eps": 1.0}]},
        {"name": "bits", "size": 12, "level": [
            {"name": "padded", "mechanism": "L-OSUE", "eps_inf": 4.0, "eps_1": 2.0},
            {"name": "subset", "mechanism": "SS", "eps": 1.0},
            {"name": "hashed", "mechanism": "L-OLH", "eps_inf": 2.0, "eps_1": 1.0},
            {"name": "binary", "mechanism": "BLH", "eps": 1.0},
        ]},
        {"name": "bytes", "size": 16, "level": [{"name": "once", "mechanism": "OUE", "eps": 1.0}]},
    ],
})  # fmt: skip
WITH_COHORTS = replace(SURVEY, cohort=Cohort(name="version", values=("1.0", "1.1", "other"), least=10))
NOW_MS = SURVEY.opens_ms(STEP) + SURVEY.step_ms // 2
PANES = [(a, level) for a, attribute in enumerate(SURVEY.attributes) for level in range(len(attribute.levels))]

# first bytes of every kind of msgpack value, extreme lengths, and numbers at the limits of their types
_CODES = [0x00, 0x7F, 0x80, 0x8F, 0x90, 0x97, 0x9F, 0xA0, 0xBF, *range(0xC0, 0xE0), 0xE0, 0xFF]
_LENGTHS = [b"\x00" * 4, b"\xff" * 4, b"\x7f\xff\xff\xff", b"\x80\x00\x00\x00", b"\x00\x01\x00\x00", b"\x00\x00\x00\x07"]
_NUMBERS = [0, 1, -1, 5, 2**7, 2**8, 2**15, 2**16, 2**31, 2**32, 2**53, 2**63 - 1, 2**63, 2**64 - 1, -(2**31), -(2**63)]


class Input(NamedTuple):
    """A record's value and the log's timestamp."""

    value: bytes
    appended_ms: int


@cache
def sound() -> tuple[bytes, ...]:
    """Returns envelopes of every kind of report, with 1, 2 and 9 reports, without and with cohorts."""
    rng = np.random.default_rng(20260105)
    envelopes = []
    for attribute, level in PANES:
        mechanism = SURVEY.mechanisms[attribute][level]
        for n in (1, 2, 9):
            reports = mechanism.simulate(rng.integers(0, mechanism.k, n), rng)
            envelopes.append(seal(SURVEY, attribute, level, STEP, reports))
            envelopes += [seal(WITH_COHORTS, attribute, level, STEP, reports, cohort) for cohort in (0, 2)]
    return tuple(envelopes)


def survey_of(raw: bytes) -> Survey:
    """Returns the survey for which an input is judged."""
    return WITH_COHORTS if WITH_COHORTS.fingerprint in raw else SURVEY


def batch(source: random.Random, size: int) -> list[Input]:
    """Returns mutated envelopes of all kinds of reports, or of one or two kinds.

    With few kinds, many envelopes have equal first bytes.
    """
    kinds = source.sample(sound(), source.choice((1, 2, len(sound()))))
    return [mutated(source, kinds) for _ in range(size)]


def mutated(source: random.Random, kinds: Sequence[bytes]) -> Input:
    """Returns a sound envelope after 0 to 3 mutations, with a timestamp that is sometimes too early or too late."""
    raw = source.choice(kinds)
    for _ in range(source.choice((0, 1, 1, 1, 1, 2, 3))):
        raw = source.choice(MUTATIONS)(raw, source)
    late = source.choice((0, 0, 0, 0, 0, 0, -1, 1, 2, -2, 10**6, -(10**6)))
    return Input(raw, NOW_MS + late * SURVEY.step_ms)


def _flip_bits(raw: bytes, source: random.Random) -> bytes:
    damaged = bytearray(raw)
    for _ in range(source.choice((1, 1, 1, 2, 8))):
        if damaged:
            damaged[source.randrange(len(damaged))] ^= 1 << source.randrange(8)
    return bytes(damaged)


def _set_byte(raw: bytes, source: random.Random) -> bytes:
    at = source.randrange(len(raw) + 1)
    return raw[:at] + bytes([source.choice(_CODES)]) + raw[at + 1 :]


def _truncate(raw: bytes, source: random.Random) -> bytes:
    at = source.randrange(len(raw) + 1)
    return source.choice((raw[:at], raw[at:]))


def _insert(raw: bytes, source: random.Random) -> bytes:
    at = source.randrange(len(raw) + 1)
    return raw[:at] + source.choice((source.randbytes(source.randint(1, 9)), bytes([source.choice(_CODES)]))) + raw[at:]


def _splice(raw: bytes, source: random.Random) -> bytes:
    other = source.choice(sound())
    return raw[: source.randrange(len(raw) + 1)] + other[source.randrange(len(other)) :]


def _claim_a_length(raw: bytes, source: random.Random) -> bytes:
    at = source.randrange(min(len(raw), 24) + 1)
    return raw[:at] + bytes([source.choice((0xC6, 0xC9, 0xDB, 0xDD, 0xDF))]) + source.choice(_LENGTHS) + raw[at:]


def _nest(raw: bytes, source: random.Random) -> bytes:
    return bytes([source.choice((0x91, 0x81, 0xC4))]) * source.choice((1, 2, 2, 30)) + raw


def _swap_element(raw: bytes, source: random.Random) -> bytes:
    """Replaces one element of the envelope by a value of any type; the other elements stay well formed."""
    try:
        fields = msgspec.msgpack.decode(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, OverflowError):
        return raw
    if not isinstance(fields, list) or not fields:
        return raw
    at = source.randrange(len(fields))
    number = source.choice((*_NUMBERS, source.randrange(10)))
    others: tuple[object, ...] = (-0.0, 1.0, "1", b"\x00", None, True, [1], {}, SURVEY.fingerprint, source.randbytes(9))
    fields[at] = number if source.random() < 0.6 else source.choice(others)
    try:
        return msgspec.msgpack.encode(fields)
    except (TypeError, OverflowError, RecursionError):
        return raw


def _write_otherwise(raw: bytes, source: random.Random) -> bytes:
    """Writes the same envelope with a longer encoding of the array header, and perhaps of the version."""
    if not raw or raw[0] not in (0x97, 0x98):
        return raw
    rest, length = source.choice((raw[1:], b"\xcc" + raw[1:], b"\xd1\x00" + raw[1:])), raw[0] - 0x90
    return source.choice((b"\xdc\x00", b"\xdd\x00\x00\x00")) + bytes([length]) + rest


def _change_length(raw: bytes, source: random.Random) -> bytes:
    """Drops an element of the envelope, or inserts a number."""
    try:
        fields = msgspec.msgpack.decode(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, OverflowError):
        return raw
    if not isinstance(fields, list) or not fields:
        return raw
    at = source.randrange(len(fields))
    fields = fields[:at] + (fields[at + 1 :] if source.random() < 0.5 else [source.choice((0, 1, 3)), *fields[at:]])
    try:
        return msgspec.msgpack.encode(fields)
    except (TypeError, OverflowError, RecursionError):
        return raw


def _change_payload(raw: bytes, source: random.Random) -> bytes:
    """Changes a byte of the payload. The envelope stays well formed, but its reports may be impossible for a device."""
    if len(raw) < 20:
        return raw
    at = source.randrange(18, len(raw))
    return raw[:at] + bytes([source.choice((0x00, 0x04, 0x05, 0x0F, 0x10, 0x80, 0xF0, 0xFF))]) + raw[at + 1 :]


MUTATIONS = (
    _flip_bits, _flip_bits, _set_byte, _truncate, _insert, _splice, _claim_a_length, _nest, _swap_element, _swap_element,
    _swap_element, _swap_element, _change_length, _write_otherwise, _change_payload, _change_payload, _change_payload,
)  # fmt: skip
