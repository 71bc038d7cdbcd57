"""Finds the candidates (see `ldpstream.planning.candidates`) that people have: their published shares are clearly above 0."""

from pathlib import Path

import msgspec
import numpy as np

from ldpstream.estimators.differences import clear_differences
from ldpstream.planning.candidates import CandidatesError
from ldpstream.surveys import Survey

RATE = 0.05  # expected share of values without people among the found values, at most
UNBIASED = "mi"  # an estimate that pulls small shares to each other has no such rate


class HistogramFile(msgspec.Struct, frozen=True):
    """The fields of the API's answer `histogram` that this module reads."""

    survey: str
    attribute: str
    step: int
    span: str
    cohort: str | None
    complete: bool
    estimator: str
    post: str
    confidence: float
    reports: int
    labels: list[str]
    frequencies: list[float | None]
    standard_errors: list[float | None]
    low: list[float | None]
    high: list[float | None]


class FoundValue(msgspec.Struct, frozen=True):
    """A found value: its share, and the ends of its own interval, with the confidence of the histogram."""

    label: str
    share: float
    low: float
    high: float


def read_shares(path: Path, survey: Survey) -> HistogramFile:
    """Reads the API's answer `/api/v1/attributes/NAME/histogram?estimator=mi`.

    Raises:
        CandidatesError: if the file is no such answer for this survey, or has no standard errors.
    """
    try:
        found = msgspec.json.decode(path.read_bytes(), type=HistogramFile)
    except OSError as error:
        raise CandidatesError(f"{path}: cannot be read: {error.strerror}") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise CandidatesError(f"{path}: not a histogram of the API as JSON: {error}") from None
    if found.survey != survey.name:
        raise CandidatesError(f"{path}: is of survey {found.survey}, expected {survey.name}")
    if (found.estimator, found.post) != (UNBIASED, "none"):
        got = f"estimator={found.estimator} and post={found.post}"
        raise CandidatesError(f"{path}: has {got}; ask for the histogram with estimator={UNBIASED} and without post")
    columns = (found.frequencies, found.standard_errors, found.low, found.high)
    if any(len(column) != len(found.labels) for column in columns) or not found.labels:
        raise CandidatesError(f"{path}: has {len(found.labels)} labels, and not as many of all numbers")
    if any(x is None for column in columns for x in column):
        raise CandidatesError(f"{path}: step {found.step} has no shares with intervals")
    return found


def found_values(old: Survey, new: Survey, shares: HistogramFile) -> tuple[list[FoundValue], int]:
    """The values of the new survey that the old one does not list, and that people have; and how many were tested.

    Benjamini and Hochberg's procedure tests all new values: on average at most 1 of 20 found values has no people. If no new
    value has people, one is found in at most 1 of 20 cases.

    Raises:
        CandidatesError: if a survey lacks the attribute, the new survey has no suitable new values of it, or the histogram
            lacks one of them.
    """
    name = shares.attribute
    for survey in (old, new):
        if name not in [a.name for a in survey.attributes]:
            raise CandidatesError(f"survey {survey.name} has no attribute {name}")
    listed, asked = set(old.attributes[old.index(name)].labels), new.attributes[new.index(name)]
    if asked.pair is not None:
        raise CandidatesError(f"{name} is a pair; ask for the histogram of the attribute with the candidates")
    new_labels = set(asked.labels) - listed - {now for was, now in asked.aliases.items() if was in listed}
    if not new_labels:
        raise CandidatesError(f"{name}: survey {new.name} has no value that survey {old.name} does not list")
    rows = [i for i, label in enumerate(shares.labels) if label in new_labels]
    if len(rows) < len(new_labels):
        raise CandidatesError(f"{name}: the histogram has {len(rows)} of {len(new_labels)} candidates; ask for it without top")
    share, error, low, high = (
        np.array([column[i] for i in rows], float)
        for column in (shares.frequencies, shares.standard_errors, shares.low, shares.high)
    )
    clear = clear_differences(np.maximum(share, 0), error, 2 * RATE)  # its p-values are two-sided, and one side counts
    order = [i for i in np.argsort(-share, kind="stable") if clear[i]]
    found = [FoundValue(shares.labels[rows[i]], float(share[i]), float(low[i]), float(high[i])) for i in order]
    return found, len(rows)
