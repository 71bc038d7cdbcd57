"""Fixtures of the API's tests: a demo, and a client of its API."""

from collections.abc import Iterator

import pytest
from fastapi.testclient import TestClient

from ldpstream.producers.values import MarkovValues
from ldpstream.services.demo import Demo

from .api_rig import STEPS, SURVEY, api_of


@pytest.fixture(scope="module")
def demo() -> Demo:
    demo = Demo(SURVEY, MarkovValues(SURVEY, 2000, STEPS, 3), 3)
    demo.run(lambda step, made: None)
    return demo


@pytest.fixture(scope="module")
def client(demo: Demo) -> Iterator[TestClient]:
    with TestClient(api_of(demo)) as client:
        yield client
