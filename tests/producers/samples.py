"""Small surveys and hand-written values for the tests of producers."""

from collections.abc import Mapping, Sequence

import numpy as np

from ldpstream.mechanisms import LONGITUDINAL
from ldpstream.mechanisms.arguments import IntArray
from ldpstream.surveys import Survey
from tests.small_survey import small_survey

EPS_INF, EPS_1 = 4.0, 2.0


def level(mechanism: str, eps_inf: float = EPS_INF, eps_1: float = EPS_1) -> dict[str, object]:
    """A level with this mechanism and its name; a one-time mechanism gets eps_1."""
    losses = {"eps_inf": eps_inf, "eps_1": eps_1} if mechanism in LONGITUDINAL else {"eps": eps_1}
    return {"name": mechanism, "mechanism": mechanism, **losses}


def make_survey(attributes: Mapping[str, tuple[int, Sequence[dict[str, object]]]], collection: str = "smp") -> Survey:
    """A survey of attributes, each given as (number of values, levels); a step takes a minute."""
    asked = ({"name": name, "size": k, "level": list(levels)} for name, (k, levels) in attributes.items())
    return small_survey(*asked, name="sample", window_steps=3, lateness_steps=1, collection=collection)


def one_question(mechanism: str, k: int = 10, eps_inf: float = EPS_INF, eps_1: float = EPS_1) -> Survey:
    """A survey of one attribute with one level."""
    return make_survey({"zone": (k, [level(mechanism, eps_inf, eps_1)])})


class WrittenValues:
    """A source of hand-written values.

    Args:
        steps: for each step one value (or None) per person; every attribute has the same values.
    """

    def __init__(self, steps: Sequence[Sequence[int | None]]) -> None:
        self.n_people, self.n_steps = len(steps[0]), len(steps)
        self._steps = steps

    def at(self, step: int, attribute: int) -> tuple[IntArray, IntArray]:
        given = [(person, value) for person, value in enumerate(self._steps[step]) if value is not None]
        people, values = np.array(given, np.int64).reshape(-1, 2).T
        return people, values

    def numbers(self, step: int, attribute: int) -> None:
        """Returns None: the values are no bins of numbers."""
