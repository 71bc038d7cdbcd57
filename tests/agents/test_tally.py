"""Compares the tally with a direct count, one envelope at a time."""

import numpy as np

from ldpstream.agents import Record, Tally, tally
from ldpstream.agents.tally import Records
from ldpstream.engines import PaneKey
from ldpstream.mechanisms import CountTable
from ldpstream.surveys import Reason, Rejected, Survey, open_envelope
from ldpstream.surveys.envelope_groups import open_groups

from .samples import during, make_survey, sound

SURVEY = make_survey()


def count_one_by_one(survey: Survey, records: list[Record]) -> Tally:
    """Counts each envelope separately, with a check of every row."""
    counts: dict[PaneKey, CountTable] = {}
    rejected: list[tuple[int, Reason]] = []
    for record in records:
        try:
            envelope = open_envelope(survey, record.value, record.appended_ms)
        except Rejected as reason:
            rejected.append((record.offset, reason.reason))
            continue
        mechanism = survey.mechanisms[envelope.attribute][envelope.level]
        row = mechanism.report_dtype
        reports = np.frombuffer(envelope.payload, row.base).reshape(-1, *row.shape)
        if not mechanism.valid(reports).all():
            rejected.append((record.offset, mechanism.invalid))
            continue
        key = PaneKey(envelope.attribute, envelope.level, envelope.step, envelope.cohort)
        counts[key] = counts.get(key, mechanism.empty_table()) + mechanism.tabulate(reports)
    return Tally(counts, rejected)


def test_a_crowd_is_read_together_with_all_checks() -> None:
    """The crowd contains impossible rows, another encoding of one envelope, and append times around the step's close."""
    rng = np.random.default_rng(9)
    crowd = [sound(SURVEY, rng, 5, 0) for _ in range(200)]
    groups, left = open_groups(SURVEY, crowd, [during(SURVEY, 5)] * 200)
    assert [group.positions.tolist() for group in groups] == [list(range(200))]
    assert groups[0].payload == b"".join(open_envelope(SURVEY, raw, during(SURVEY, 5)).payload for raw in crowd)
    assert left == []
    bad = [raw[:-1] + b"\xff" if i % 3 == 0 else raw for i, raw in enumerate(crowd)]
    records = [Record(i, during(SURVEY, 5), raw) for i, raw in enumerate(bad)]
    assert tally(SURVEY, records) == count_one_by_one(SURVEY, records)
    # like the envelopes of `crowd`, but with the payload's length in two bytes
    wide = [raw[:-3] + b"\xc5\x00" + raw[-2:] for raw in crowd]
    assert open_envelope(SURVEY, wide[0], during(SURVEY, 5)).payload == crowd[0][-1:]
    assert open_groups(SURVEY, wide, [during(SURVEY, 5)] * 200) == ([], list(range(200)))
    mixed, _ = open_groups(SURVEY, [sound(SURVEY, rng, 4 + i % 2, 0) for i in range(200)], [during(SURVEY, 5)] * 200)
    assert [(one.envelope.step, one.positions.tolist()) for one in mixed] == [(i + 4, [*range(i, 200, 2)]) for i in range(2)]
    late = [SURVEY.closes_ms(5) - 100 + i for i in range(200)]
    assert tally(SURVEY, [Record(i, late[i], raw) for i, raw in enumerate(crowd)]).reports == 100


def test_columns_hold_the_same_records() -> None:
    rng = np.random.default_rng(4)
    records = [Record(3 + i, during(SURVEY, i // 4), sound(SURVEY, rng, i // 4, 0)) for i in range(12)]
    columns = Records.of(records)
    assert list(columns) == records
    assert list(columns[2:5]) == records[2:5]
    assert columns[-1] == records[-1]
    assert [[r.offset for r in piece] for piece in columns.by_step(SURVEY)] == [[3, 4, 5, 6], [7, 8, 9, 10], [11, 12, 13, 14]]
    assert len(Records.of([])) == 0
    assert list(Records.of([]).by_step(SURVEY)) == []
