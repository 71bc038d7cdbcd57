"""Tests the demo's pipeline in one process, with every collection method for several attributes."""

import copy
import tomllib
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from ldpstream.producers.values import MarkovValues
from ldpstream.services.demo import Demo
from ldpstream.surveys import parse_survey

DEMO = tomllib.loads((Path(__file__).parents[2] / "surveys" / "samples" / "demo.toml").read_text())
PEOPLE, STEPS = 20_000, 8


@pytest.mark.parametrize("collection", ["smp", "spl", "rs+fd"])
def test_the_intervals_contain_the_truth_as_often_as_stated(collection: str) -> None:
    """A run has 72 intervals of 95 %. The probability that 16 or more miss the truth is below 1e-6. The intervals are wider
    than needed, because the truth is the histogram of the participants themselves. As a control, halved intervals must miss the
    truth more often."""
    document = copy.deepcopy(DEMO) | {"collection": collection}
    survey = parse_survey(document)
    demo = Demo(survey, MarkovValues(survey, PEOPLE, STEPS, 4), 4)
    demo.run(lambda step, made: None)
    assert not demo.service.rejected()
    misses, halved, seen = 0, 0, 0
    for p in demo.service.results.history():
        true = demo.truth.of(p).shares
        if p.span != "step" or p.step % 2 or true is None:
            continue
        share = 1 if collection != "smp" else 0.6
        assert PEOPLE * (0.4 if collection == "smp" else 1) <= p.reports <= PEOPLE * share
        mi = p.estimators["mi"]
        z = np.abs(np.array(mi.frequencies) - np.array(true)) / np.array(mi.standard_errors)
        seen += z.size
        misses += int((z > 1.96).sum())
        halved += int((z > 0.98).sum())
    assert seen == 4 * 18
    assert misses < 16
    assert halved >= 10


def numbers_of(found: npt.NDArray[np.float64]) -> list[float]:
    """The mean, and each percentile as the smallest number that enough people do not exceed."""
    order = np.sort(found)
    return [float(found.mean()), *(float(order[-(-found.size * percent // 100) - 1]) for percent in (50, 90, 99))]


def test_the_truth_of_numbers_is_that_of_the_people_not_of_the_bins() -> None:
    """The run has more steps than a window, so that the truth is kept although the people's numbers are forgotten."""
    survey = parse_survey(copy.deepcopy(DEMO) | {"collection": "spl"})
    source, steps, place = MarkovValues(survey, 500, STEPS, 4), range(STEPS), survey.index("latency_ms")
    demo = Demo(survey, source, 4)
    demo.run(lambda step, made: None)
    people = [source.numbers(step, place) for step in steps]
    edges = np.array(survey.attributes[place].bins)
    for step, numbers in zip(steps, people, strict=True):
        assert numbers is not None
        np.testing.assert_array_equal(np.searchsorted(edges, numbers, side="right") - 1, source.at(step, place)[1])
    for p in demo.service.results.history():
        found = demo.truth.of(p).numbers
        if p.attribute == "latency_ms" and p.step < STEPS:
            first = max(0, p.step + 1 - survey.window_steps) if p.span == "window" else p.step
            pooled = np.concatenate([numbers for numbers in people[first : p.step + 1] if numbers is not None])
            assert list(found.values()) == pytest.approx(numbers_of(pooled), rel=1e-12)
        assert p.attribute == "latency_ms" or not found
