"""Reference counter, written from the text of the wire format. It is slow plain Python, without the service's counting code.

The counter reads msgpack byte by byte, checks each row of the payload separately and counts with lists. It reads only facts
from the survey: the fingerprint, the times, and each mechanism's k, g, number of hash functions and set size.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ldpstream.mechanisms import Mechanism
from ldpstream.mechanisms.families.grr import GRR, LongitudinalGRR
from ldpstream.mechanisms.families.local_hashing import LocalHashing, LongitudinalHashing
from ldpstream.mechanisms.families.subset import Subsets
from ldpstream.mechanisms.families.unary import LongitudinalUnary, UnaryEncoding
from ldpstream.surveys import Survey
from ldpstream.surveys.envelope import MAX_ENVELOPE_BYTES

MAX_DEPTH = 200  # limit of nested arrays and maps: far above any real envelope, and below any decoder's limit


class Counted(NamedTuple):
    """One sound envelope: its pane, its number of reports, and its counts as a flat list in the table's order.

    The pane is attribute, level, step and cohort; the cohort is 0 in a survey without cohorts.
    """

    pane: tuple[int, int, int, int]
    n: int
    counts: list[int]


class NotMsgpack(Exception):
    """The bytes are not exactly one msgpack value."""


def judge_log(records: Sequence[Any], judged: Callable[[bytes, int], Any]) -> list[Any]:
    """Judges the records of a partition: each report key counts once, with the first record that is sound.

    Each record gets the latest append time of all records up to that record. The keys are never forgotten: when the service
    forgets a key, the step of the key's envelope has closed, so that the envelope is rejected.

    Args:
        records: have `appended_ms`, `value` and `key`, in the order of the log.
        judged: judges an envelope at an append time, as `judge` does.

    Returns:
        For each record: what `judged` returned, "malformed key", "duplicate" or "marker".
    """
    newest, counted, found = 0, set[bytes](), list[Any]()
    for record in records:
        newest = max(newest, record.appended_ms)
        if not record.value:
            found.append("marker")
            continue
        if len(record.key) not in (0, 16):
            found.append("malformed key")
            continue
        verdict = judged(record.value, newest)
        if record.key and not isinstance(verdict, str):
            if record.key in counted:
                verdict = "duplicate"
            counted.add(record.key)
        found.append(verdict)
    return found


def judge(survey: Survey, raw: bytes, appended_ms: int) -> Counted | str:
    """Returns the counts of the envelope or the reason for its rejection."""
    if len(raw) > MAX_ENVELOPE_BYTES:
        return "too large"
    try:
        found, end = _read(raw, 0, 0)
        if end != len(raw):
            raise NotMsgpack
    except NotMsgpack:
        return "undecodable"
    if not isinstance(found, list) or not found or type(found[0]) is not int:
        return "undecodable"
    if found[0] != 1:
        return "unknown version"
    types = [type(element) for element in found]
    if types not in ([int, bytes, int, int, int, int, bytes], [int, bytes, int, int, int, int, int, bytes]):
        return "undecodable"
    _, fingerprint, attribute, level, step, n, *cohorts, payload = found
    if any(not -(2**63) <= number < 2**64 for number in (attribute, level, step, n, *cohorts)):
        return "undecodable"
    if fingerprint != survey.fingerprint:
        return "wrong survey"
    if attribute not in range(len(survey.attributes)) or level not in range(len(survey.attributes[attribute].levels)):
        return "unknown attribute or level"
    if len(cohorts) != (survey.cohort is not None):
        return "unknown cohort"
    if survey.cohort is not None and cohorts[0] not in range(len(survey.cohort.values)):
        return "unknown cohort"
    mechanism = survey.mechanisms[attribute][level]
    width = row_bytes(mechanism)
    if n < 1 or len(payload) != n * width:
        return "wrong length"
    if isinstance(survey.ends, int) and step >= survey.ends:
        return "survey ended"
    opens = survey.start_ms + step * survey.step_seconds * 1000
    if step < 0 or appended_ms >= opens + (1 + survey.lateness_steps) * survey.step_seconds * 1000:
        return "step too old"
    if appended_ms + survey.skew_ms < opens:
        return "step in the future"
    counts = [0] * cells(mechanism)
    for first in range(0, len(payload), width):
        hit = _cells_of(mechanism, payload[first : first + width])
        if isinstance(hit, str):
            return hit
        for cell in hit:
            counts[cell] += 1
    return Counted((attribute, level, step, *(cohorts or [0])), n, counts)


# ---- rows


def _width(symbols: int) -> int:
    return 1 if symbols <= 2**8 else 2 if symbols <= 2**16 else 4


def row_bytes(m: Mechanism) -> int:
    """Returns the size of one report in bytes."""
    if isinstance(m, GRR | LongitudinalGRR):
        return _width(m.k)
    if isinstance(m, LocalHashing | LongitudinalHashing):
        return _width(m.pool.size) + _width(m.g)
    return (m.k + 7) // 8


def cells(m: Mechanism) -> int:
    """Returns the number of counts in the table."""
    return m.pool.size * m.g if isinstance(m, LocalHashing | LongitudinalHashing) else m.k


def _cells_of(m: Mechanism, row: bytes) -> list[int] | str:
    """Returns the indices of the counts that a report raises by one, or the reason for its rejection."""
    if isinstance(m, GRR | LongitudinalGRR):
        symbol = int.from_bytes(row, "little")
        return [symbol] if symbol < m.k else "symbol out of range"
    if isinstance(m, LocalHashing | LongitudinalHashing):
        split = _width(m.pool.size)
        function, symbol = int.from_bytes(row[:split], "little"), int.from_bytes(row[split:], "little")
        return [function * m.g + symbol] if function < m.pool.size and symbol < m.g else "symbol out of range"
    assert isinstance(m, UnaryEncoding | LongitudinalUnary | Subsets)
    ones = [8 * i + bit for i, byte in enumerate(row) for bit in range(8) if byte >> bit & 1]
    if isinstance(m, Subsets):
        return ones if len(ones) == m.omega and all(one < m.k for one in ones) else "symbol out of range"
    return ones if all(one < m.k for one in ones) else "padding bits set"


# ---- msgpack


def _read(raw: bytes, at: int, depth: int) -> tuple[Any, int]:
    """Returns the value that begins at `at`, and the position of its end."""
    if depth > MAX_DEPTH:
        raise NotMsgpack
    head, at = _take(raw, at, 1)
    code = head[0]
    if code < 0x80:
        return code, at
    if code >= 0xE0:
        return code - 256, at
    if code < 0x90:
        return _map(raw, at, code & 0x0F, depth)
    if code < 0xA0:
        return _array(raw, at, code & 0x0F, depth)
    if code < 0xC0:
        return _text(raw, at, code & 0x1F)
    if code in (0xC0, 0xC2, 0xC3):
        return {0xC0: None, 0xC2: False, 0xC3: True}[code], at
    if code in (0xC4, 0xC5, 0xC6):
        size, at = _number(raw, at, 1 << (code - 0xC4))
        return _take(raw, at, size)
    if code in (0xC7, 0xC8, 0xC9):
        size, at = _number(raw, at, 1 << (code - 0xC7))
        return _extension(raw, at, size)
    if code in (0xCA, 0xCB):
        _, at = _take(raw, at, 4 if code == 0xCA else 8)
        return 0.5, at  # represents any floating-point number
    if 0xCC <= code <= 0xCF:
        return _number(raw, at, 1 << (code - 0xCC))
    if 0xD0 <= code <= 0xD3:
        size = 1 << (code - 0xD0)
        found, at = _take(raw, at, size)
        return int.from_bytes(found, "big", signed=True), at
    if 0xD4 <= code <= 0xD8:
        return _extension(raw, at, 1 << (code - 0xD4))
    if code in (0xD9, 0xDA, 0xDB):
        size, at = _number(raw, at, 1 << (code - 0xD9))
        return _text(raw, at, size)
    if code in (0xDC, 0xDD):
        size, at = _number(raw, at, 2 if code == 0xDC else 4)
        return _array(raw, at, size, depth)
    if code in (0xDE, 0xDF):
        size, at = _number(raw, at, 2 if code == 0xDE else 4)
        return _map(raw, at, size, depth)
    raise NotMsgpack  # 0xC1, a byte that the format never uses


def _take(raw: bytes, at: int, size: int) -> tuple[bytes, int]:
    if at + size > len(raw):
        raise NotMsgpack
    return raw[at : at + size], at + size


def _number(raw: bytes, at: int, size: int) -> tuple[int, int]:
    found, at = _take(raw, at, size)
    return int.from_bytes(found, "big"), at


def _text(raw: bytes, at: int, size: int) -> tuple[str, int]:
    found, at = _take(raw, at, size)
    return found.decode(errors="replace"), at  # the format allows any bytes in a string


def _extension(raw: bytes, at: int, size: int) -> tuple[Any, int]:
    kind, at = _take(raw, at, 1)
    body, at = _take(raw, at, size)
    return (kind, body), at


def _array(raw: bytes, at: int, size: int, depth: int) -> tuple[list[Any], int]:
    found = []
    for _ in range(size):  # reads only up to the end of the bytes, even if the stated size is larger
        element, at = _read(raw, at, depth + 1)
        found.append(element)
    return found, at


def _map(raw: bytes, at: int, size: int, depth: int) -> tuple[dict[int, Any], int]:
    for _ in range(2 * size):
        _, at = _read(raw, at, depth + 1)
    return {}, at
