"""A small survey whose reports are symbols, bits and hashed symbols, and sound and spoilt envelopes of this survey."""

import msgspec
import numpy as np

from ldpstream.agents import Record
from ldpstream.surveys import REASONS, Reason, Survey, parse_survey, seal
from ldpstream.surveys.envelope import MAX_ENVELOPE_BYTES
from tests.small_survey import START

# attribute and level of each pane; the reports are symbols, bits (with padding) and hashed symbols
PANES = ((0, 0), (1, 0), (1, 1))
N_STEPS = 10**8  # steps of the survey

Fields = list[object]


def make_survey(name: str = "sample", step_seconds: int = 10, lateness_steps: int = 1, cohorts: int = 0) -> Survey:
    """Makes a survey with two attributes and three levels. A device's clock may run ahead by one step.

    The survey has `cohorts` cohorts, whose histograms need 20 reports.
    """
    versions = {"name": "version", "values": [f"1.{i}" for i in range(cohorts)], "least": 20}
    return parse_survey({
        "name": name, "start": START, "step_seconds": step_seconds, "window_steps": 3, "lateness_steps": lateness_steps,
        "skew_seconds": step_seconds, "collection": "smp", "ends": N_STEPS, "cohort": versions if cohorts else None,
        "attribute": [
            {
                "name": "mode", "values": ["car", "bus", "bicycle", "train", "foot"],
                "level": [{"name": "only", "mechanism": "L-GRR", "eps_inf": 4.0, "eps_1": 2.0}],
            },
            {
                "name": "zone", "size": 12,
                "level": [
                    {"name": "standard", "mechanism": "L-OSUE", "eps_inf": 4.0, "eps_1": 2.0},
                    {"name": "cautious", "mechanism": "L-OLH", "eps_inf": 2.0, "eps_1": 1.0},
                ],
            },
        ],
    })  # fmt: skip


def sound(survey: Survey, rng: np.random.Generator, step: int, pane: int, n: int = 1) -> bytes:
    """Makes an envelope of n reports of random values, of a random cohort; `pane` is an index into PANES."""
    attribute, level = PANES[pane]
    mechanism = survey.mechanisms[attribute][level]
    reports = mechanism.simulate(rng.integers(0, mechanism.k, n), rng)
    return seal(survey, attribute, level, step, reports, 0 if survey.cohort is None else int(rng.integers(survey.n_cohorts)))


def spoilt(survey: Survey, rng: np.random.Generator, step: int, reason: Reason) -> bytes:
    """Makes an envelope that is rejected for exactly this reason if the log appends the envelope during `step`.

    For "survey ended" the survey must have an end.
    """
    pane = 1 if reason == "padding bits set" else 0
    too_old = step - 2 - survey.lateness_steps
    steps = {"survey ended": survey.n_steps, "step too old": too_old, "step in the future": step + 1000}
    fields: Fields = msgspec.msgpack.decode(sound(survey, rng, 0, pane, n=3))
    fields[4] = steps.get(reason, step)
    payload = fields[-1]
    assert isinstance(payload, bytes)
    changes: dict[Reason, tuple[int, object]] = {
        "unknown version": (0, 2),
        "wrong survey": (1, bytes(8)),
        "unknown attribute or level": (3, 7),
        "wrong length": (-1, payload[:-1]),
        "symbol out of range": (-1, payload[:-1] + b"\xff"),
        "padding bits set": (-1, payload[:2] + b"\xff\xff" + payload[4:]),
    }
    if reason == "undecodable":
        return b"\xc1 not msgpack"
    if reason == "too large":
        return bytes(MAX_ENVELOPE_BYTES + 1)
    if reason == "unknown cohort" and survey.cohort is None:
        fields.insert(6, 0)
    elif reason == "unknown cohort":
        fields[6] = survey.n_cohorts
    elif reason in changes:
        index, value = changes[reason]
        fields[index] = value
    return msgspec.msgpack.encode(fields)


def during(survey: Survey, step: int) -> int:
    """Returns the middle of the step, in Unix milliseconds."""
    return survey.opens_ms(step) + survey.step_ms // 2


def make_log(survey: Survey, rng: np.random.Generator, length: int, steps: int, share_spoilt: float = 0.2) -> list[Record]:
    """Makes records at offsets 0 … length-1, appended evenly over the steps. A random share of the records is spoilt.

    Each sound envelope gets a random step that a device may still report at the envelope's append time.
    """
    records = []
    for offset in range(length):
        step = offset * steps // max(1, length)
        if rng.random() < share_spoilt:
            value = spoilt(survey, rng, step, REASONS[int(rng.integers(len(REASONS)))])
        else:
            of_step = max(0, step + int(rng.integers(-survey.lateness_steps, 2)))
            value = sound(survey, rng, of_step, int(rng.integers(len(PANES))), int(rng.integers(1, 5)))
        records.append(Record(offset, during(survey, step), value))
    return records
