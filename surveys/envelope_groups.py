"""Opens envelopes with equal headers together, for speed."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ldpstream.mechanisms.arguments import IntArray
from ldpstream.surveys.envelope import AnyEnvelope, Rejected, encode, open_envelope
from ldpstream.surveys.survey import Survey

FEW = 8  # up to this many envelopes, opening each envelope alone is as fast


class EnvelopeGroup(NamedTuple):
    """Envelopes that differ only in their payloads, and pass all checks of `open_envelope`.

    Attributes:
        envelope: one of the envelopes.
        positions: (m,) the envelopes' positions in the input.
        payload: the payloads of all envelopes, in the order of `positions`.
    """

    envelope: AnyEnvelope
    positions: IntArray
    payload: bytes


def open_groups(survey: Survey, raws: Sequence[bytes], appended_ms: Sequence[int]) -> tuple[list[EnvelopeGroup], list[int]]:
    """Returns groups of envelopes with equal valid headers, and the positions of all other envelopes, valid or not.

    Args:
        appended_ms: each record's append time in the log, in ms since 1970.
    """
    groups: list[EnvelopeGroup] = []
    left: list[int] = []
    times = np.asarray(appended_ms, np.int64)
    lengths = np.fromiter(map(len, raws), np.int64, len(raws))
    for length in np.unique(lengths).tolist():
        positions = np.flatnonzero(lengths == length)
        header = _header_bytes(survey, raws, times, positions[:FEW]) if positions.size > FEW else None
        if header is None:
            left += positions.tolist()
            continue
        rows = np.frombuffer(b"".join([raws[i] for i in positions.tolist()]), np.uint8).reshape(-1, length)
        for members in _same(rows[:, :header]):
            group = _open(survey, raws, times, positions[members], rows, members, header)
            if group is None:
                left += positions[members].tolist()
            else:
                groups.append(group)
    return groups, left


def _header_bytes(survey: Survey, raws: Sequence[bytes], times: IntArray, positions: IntArray) -> int | None:
    for position in positions.tolist():
        try:
            envelope = open_envelope(survey, raws[position], int(times[position]))
        except Rejected:
            continue
        return len(raws[position]) - len(envelope.payload)
    return None


def _same(headers: npt.NDArray[np.uint8]) -> list[IntArray]:
    """The positions of equal headers, in order."""
    if (headers == headers[0]).all():
        return [np.arange(len(headers))]
    rows = np.ascontiguousarray(headers).view(f"V{headers.shape[1]}").ravel()
    _, group = np.unique(rows, return_inverse=True)
    positions = np.argsort(group, kind="stable")
    return np.split(positions, np.flatnonzero(np.diff(group[positions])) + 1)


def _open(
    survey: Survey,
    raws: Sequence[bytes],
    times: IntArray,
    positions: IntArray,
    rows: npt.NDArray[np.uint8],
    members: IntArray,
    header: int,
) -> EnvelopeGroup | None:
    if positions.size <= FEW:
        return None
    raw, appended = raws[positions[0]], times[positions]
    try:
        envelope = open_envelope(survey, raw, int(appended[0]))
    except Rejected:
        return None
    own_header = len(raw) - len(envelope.payload)
    if own_header > header or encode(envelope) != raw:  # the header is longer than the compared bytes, or encoded otherwise
        return None
    if survey.too_old(envelope.step, int(appended.max())) or survey.too_early(envelope.step, int(appended.min())):
        return None
    payloads = rows[:, own_header:] if members.size == len(rows) else rows[members, own_header:]
    return EnvelopeGroup(envelope, positions, payloads.tobytes())
