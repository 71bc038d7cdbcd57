"""The survey of the API's tests, and the API of a demo of this survey."""

import tomllib
from pathlib import Path

from fastapi import FastAPI

from ldpstream.publishing.answers.responses import Served
from ldpstream.publishing.api.app import create_api
from ldpstream.publishing.estimates.publication import Publication
from ldpstream.services.demo import Demo
from ldpstream.surveys import parse_survey

STEPS = 4
TOML = (Path(__file__).parents[2] / "surveys" / "samples" / "demo.toml").read_text()
SURVEY = parse_survey(tomllib.loads(TOML.replace('"settings"', '"=1+1"')))


def api_of(demo: Demo) -> FastAPI:
    return create_api(Served(SURVEY, demo.service.results, demo.service.rejected, truth=demo.truth.of))


def published(demo: Demo, attribute: str, span: str, step: int) -> Publication:
    (found,) = demo.service.results.get([f"{attribute}|{span}|{step}"])
    assert found is not None
    return found
