"""A survey that is replaced while its devices run: two demos, whose steps overlap, and the API of the second survey."""

from datetime import timedelta
from functools import cache
from typing import Any

import numpy as np
from fastapi import FastAPI

from ldpstream.mechanisms.arguments import IntArray
from ldpstream.producers.values import MarkovValues
from ldpstream.publishing.answers.earlier import Replaced
from ldpstream.publishing.answers.responses import Served
from ldpstream.publishing.api.app import create_api
from ldpstream.services.demo import Demo
from ldpstream.surveys import Survey
from tests.small_survey import START, small_survey

PEOPLE = 2000
OLD_STEPS, NEW_STEPS, BETWEEN = 8, 5, 6  # the new survey begins at the old survey's step 6
LEVEL = {"name": "standard", "mechanism": "GRR", "eps": 6.0}
MODE = {"name": "mode", "values": ["car", "bus", "bike", "walk"], "level": [LEVEL]}
DISTANCE = {"name": "distance_km", "bins": [0, 2, 5, 10], "level": [LEVEL]}
KEYS: dict[str, Any] = {"name": "travel", "step_seconds": 86400, "lateness_steps": 1, "collection": "spl"}


def travel(**keys: Any) -> Survey:
    return small_survey(MODE, DISTANCE, **KEYS | keys)


def replacing(old: Survey, **keys: Any) -> Survey:
    """A survey that replaces `old`: bike is renamed, scooter is added, and the distances have other bins."""
    mode = MODE | {"values": ["scooter", "bus", "car", "bicycle", "walk"], "aliases": {"bike": "bicycle"}}
    changed = KEYS | {"name": "travel-2", "replaces": old.fingerprint.hex(), "start": START + timedelta(BETWEEN)} | keys
    return small_survey(mode, DISTANCE | {"bins": [0, 2, 5, 20]}, **changed)


OLD = travel()
NEW = replacing(OLD)


class Ridden:
    """The true values of the old survey's people in the new survey's steps. Every second person who walked rides a scooter."""

    def __init__(self, steps: int) -> None:
        self.n_people, self.n_steps = PEOPLE, steps
        self._before = MarkovValues(OLD, PEOPLE, BETWEEN + steps, 1)

    def at(self, step: int, attribute: int) -> tuple[IntArray, IntArray]:
        people, values = self._before.at(BETWEEN + step, attribute)
        if attribute == 0:
            values = np.array([2, 1, 3, 4])[values]  # car, bus, bike, walk in the new survey
            values[(values == 4) & (people % 2 == 0)] = 0
        return people, values

    def numbers(self, step: int, attribute: int) -> None:
        """Returns None: the values are no bins of numbers."""


def answered(survey: Survey, steps: int) -> Demo:
    """The demo of a survey after these steps."""
    demo = Demo(survey, Ridden(steps) if survey.replaces else MarkovValues(survey, PEOPLE, steps, 1), 1)
    demo.run(lambda step, made: None)
    return demo


@cache
def demos() -> tuple[Demo, Demo]:
    return answered(OLD, OLD_STEPS), answered(NEW, NEW_STEPS)


def api_of_new() -> FastAPI:
    old, new = demos()
    replaced = [Replaced(OLD, old.service.results)]
    now_ms = NEW.opens_ms(NEW_STEPS + 1)
    return create_api(Served(NEW, new.service.results, new.service.rejected, clock=lambda: now_ms, replaced=lambda: replaced))
