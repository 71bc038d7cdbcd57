"""The cost of a pair of attributes, in people.

A pair takes people (smp) or budget (spl) from all other attributes, or makes their true answers rarer (rs+fd).
"""

import numpy as np
from msgspec import structs

from ldpstream.mechanisms import Mechanism
from ldpstream.mechanisms.wording import up
from ldpstream.surveys import Survey


def people_factor(survey: Survey, pair: int) -> float | None:
    """The largest factor by which this pair raises the number of people that another attribute needs for the same precision.

    The precision is that of the unbiased estimate of a share of 1/k from one step. None if the survey without the pair
    would not be valid.
    """
    kept = [i for i in range(len(survey.attributes)) if i != pair]
    try:
        without = structs.replace(survey, attributes=tuple(survey.attributes[i] for i in kept))
    except ValueError:  # without the pair, the others would get a larger ε than a mechanism takes
        return None
    more_people = len(survey.attributes) / len(kept) if survey.collection == "smp" else 1.0
    ratios = [
        _variance(m) / _variance(before)
        for i, levels in zip(kept, without.mechanisms, strict=True)
        for m, before in zip(survey.mechanisms[i], levels, strict=True)
    ]
    return more_people * max(ratios)


def _variance(m: Mechanism) -> float:
    return float(m.reading.inversion_variances(np.full(m.k, 1 / m.k), 1).max())


def cost_lines(survey: Survey) -> list[str]:
    return [
        f"{a.name} is the pair of {a.pair[0]} and {a.pair[1]}, asked as one attribute of {a.k} values. With it, "
        f"{cost_text(people_factor(survey, i))} for the same precision."
        for i, a in enumerate(survey.attributes)
        if a.pair is not None
    ]


def cost_text(factor: float | None) -> str:
    if factor is None:
        return "every other attribute needs an unknown number of times the people (the survey is not valid without the pair)"
    return f"every other attribute needs up to {up(factor, 2)} times the people"
