"""Forecast of accuracy: the precision of a survey's estimates with a number of people, for every attribute and level.

All numbers are for the unbiased estimate (matrix inversion), from the exact variances of the mechanisms. Let V_t(f) be the
variance of the mean of t reports of one person. With n people, the estimate of a share f has the variance s(f) / n. s(f) is:

    step      w V_1                               one person in w reports at a step
    window    V_t max(1, t w / W)                 W steps; values do not change, as `matrix_inversion` assumes

t = min(⌈W/w⌉, `lifetime_reports`) is the largest number of reports that a person sends in a window. The step
assumes that no device has sent its last report yet.
"""

import math

import numpy as np
from msgspec import Struct

from ldpstream.mechanisms import Mechanism
from ldpstream.mechanisms.arguments import MAX_COUNT, integer, real
from ldpstream.promises.crowds import SecondPromise
from ldpstream.surveys import Attribute, Survey

INTERVAL = 1.959964  # normal quantile of a 95 % interval
WIDTH = 0.01  # default of the wished half-width


class Precision(Struct, frozen=True, kw_only=True):
    """Precision of one span.

    Attributes:
        half_width: half of the length of the 95 % interval of the share `Forecast.share`.
        people: number of people of the whole survey for the wished half-width.
    """

    half_width: float
    people: int


class Forecast(Struct, frozen=True, kw_only=True):
    """Forecast for an attribute, if all its people choose this level.

    Attributes:
        k: number of values; with `choices`, number of symbols of a report.
        share: the share of people that `half_width` is for: 1/k; with `choices` = m, m/k.
        people: number of people who answer the attribute.
        reports: number of reports at a step.
        spans: precision of a step and of the window.
    """

    attribute: str
    level: str
    k: int
    share: float
    every_steps: int
    people: float
    reports: float
    spans: dict[str, Precision]


class PeopleDocument(Struct, frozen=True, kw_only=True):
    """The document of `check --people --json`; `docs/reference/people.schema.json` is its schema.

    Attributes:
        width: the wished half-width of a 95 % interval.
        relay_required: true if devices send only through a relay. The second promise then also holds against the operator, and
            otherwise only against readers of the published histograms.
        second_promise: both promises, by attribute, level and span.
    """

    survey: str
    fingerprint: str
    people: int
    width: float
    forecast: list[Forecast]
    relay_required: bool
    second_promise: list[SecondPromise]


def forecast(survey: Survey, people: int, width: float = WIDTH) -> list[Forecast]:
    """Returns the forecast for every attribute and level.

    Args:
        people: number of people of the whole survey, at least 1.
        width: the wished half-width of a 95 % interval, in (0, 1).

    Raises:
        ValueError: if an argument is out of range.
    """
    integer("people", people, 1, MAX_COUNT)
    real("width", width, 1e-9, 1 - 1e-9)
    parts = len(survey.attributes) if survey.collection == "smp" else 1
    return [_level(survey, attribute, level.name, m, people / parts, parts, width) for _, attribute, level, m in survey.levels]


def _level(survey: Survey, attribute: Attribute, level: str, m: Mechanism, n: float, parts: int, width: float) -> Forecast:
    spans, most = {}, m.choices or 1  # shares of drawn members times this number are shares of people
    for name, variance in person_variances(m, survey.window_steps).items():
        half_width = most * INTERVAL * math.sqrt(variance / n)
        needed = math.ceil(round(parts * n * (half_width / width) ** 2, 6))
        spans[name] = Precision(half_width=half_width, people=needed)
    return Forecast(
        attribute=attribute.name, level=level, k=m.k, share=most / m.k, every_steps=m.every_steps, people=n,
        reports=n / m.every_steps, spans=spans,
    )  # fmt: skip


def person_variances(m: Mechanism, window: int) -> dict[str, float]:
    """Returns s(1/k) of each span, see the module's docstring; all values have equal shares.

    For a mechanism whose values have different variances (Square Wave), the value with the largest variance counts.
    """
    shares, w, t = np.full(m.k, 1 / m.k), m.every_steps, m.reports_in(window)

    def largest(reports: int) -> float:
        return float(m.reading.inversion_variances(shares, 1, reports).max())

    return {"step": w * largest(1), "window": largest(t) * max(1.0, t * w / window)}
