"""What all tests share: the options that point the service tests at services that run already."""

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--kafka` and `--redis`; they live here because pytest reads options from the top `conftest.py` only."""
    group = parser.getgroup("services", "services that run already (else the tests start their own)")
    group.addoption("--kafka", metavar="HOST:PORT", help="a Kafka broker; the tests add topics of their own to it")
    group.addoption("--redis", metavar="URL", help="a Redis database, which must be empty; the tests empty it again")
