"""The checks of a batch: envelopes with equal headers are checked together, with the same result as one by one."""

import msgspec
import numpy as np

from ldpstream.gateway.http.bodies import Checks
from ldpstream.gateway.http.problems import Problem
from ldpstream.surveys import seal
from tests.agents.samples import make_survey

SURVEY, OTHER = make_survey("batch"), make_survey("other")
NOW_MS = SURVEY.opens_ms(3)


def random_envelope(rng: np.random.Generator) -> bytes:
    """An envelope that is valid, of another step, damaged, or valid and encoded otherwise."""
    attribute = int(rng.integers(len(SURVEY.mechanisms)))
    level = int(rng.integers(len(SURVEY.mechanisms[attribute])))
    mechanism = SURVEY.mechanisms[attribute][level]
    reports = mechanism.simulate(rng.integers(0, mechanism.k, rng.integers(1, 4)), rng)
    raw = seal(SURVEY, attribute, level, int(rng.choice((0, 3, 3, 3, 3, 9))), reports)
    if rng.random() < 0.1:
        damaged = bytearray(raw)
        damaged[int(rng.integers(len(raw))) if rng.random() < 0.5 else -1] = 0xFF
        return bytes(damaged)
    if rng.random() < 0.1:
        head = raw[: 1 + 1 + 2 + 8]  # array, version, fingerprint
        elements = msgspec.msgpack.decode(raw)
        return head + b"".join(b"\xd2" + n.to_bytes(4, "big") for n in elements[2:-1]) + msgspec.msgpack.encode(elements[-1])
    return raw


def outcome(checks: Checks) -> tuple[object, ...]:
    try:
        checks.require_countable(batch=True)
    except Problem as problem:
        return problem.cause, problem.elements
    return checks.reports, checks.earliest_step, checks.panes, checks._passed


def test_a_batch_is_checked_as_its_envelopes_one_by_one() -> None:
    rng = np.random.default_rng(20261126)
    seen = set()
    for _ in range(300):
        pool = [random_envelope(rng) for _ in range(rng.integers(1, 4))]
        pool += [raw[:-1] + bytes([rng.integers(256)]) for raw in pool]  # another payload after the same header
        envelopes = [pool[i] for i in rng.integers(0, len(pool), rng.integers(1, 60))]
        if rng.random() < 0.1:
            envelopes[int(rng.integers(len(envelopes)))] = seal(
                OTHER, 0, 0, 3, np.zeros(1, OTHER.mechanisms[0][0].report_dtype)
            )
        together, alone = (Checks({one.fingerprint: one for one in (SURVEY, OTHER)}, NOW_MS) for _ in range(2))
        half = len(envelopes) // 2
        together.check(envelopes[:half])
        together.check(envelopes[half:], half)
        for index, raw in enumerate(envelopes):
            alone.check([raw], index)
        assert outcome(together) == outcome(alone)
        seen.add(str(outcome(alone)[0]))
    causes = {
        "step too old",
        "step in the future",
        "padding bits set",
        "symbol out of range",
        "wrong survey",
        "several surveys",
    }
    assert causes <= seen
