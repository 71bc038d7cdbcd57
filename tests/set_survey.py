"""A survey with a question with several answers, for tests."""

from typing import Any

from ldpstream.surveys import Survey
from tests.small_survey import small_survey

LEVEL = {"name": "standard", "mechanism": "auto", "eps_inf": 4.0, "eps_1": 2.0}
ONCE = {"name": "standard", "mechanism": "PS-GRR", "eps": 2.0}
APPS = {"name": "apps", "values": ["chat", "mail", "maps", "music", "other"], "choices": 3, "level": [LEVEL]}
MODE = {"name": "mode", "values": ["car", "bus"], "level": [LEVEL]}


def set_survey(*others: dict[str, Any], apps: dict[str, Any] | None = None, **keys: Any) -> Survey:
    """A survey of `apps`, with at most three of five values; `apps` replaces keys of the attribute, `keys` of the survey."""
    return small_survey(APPS | (apps or {}), *others, **keys)
