"""A survey with a pair of attributes, for tests."""

from typing import Any

from ldpstream.surveys import Survey
from tests.small_survey import small_survey

LEVEL = {"name": "standard", "mechanism": "auto", "eps_inf": 4.0, "eps_1": 2.0}
ONCE = {"name": "standard", "mechanism": "GRR", "eps": 2.0}
MODE = {"name": "mode", "values": ["car", "bus", "bicycle"], "level": [LEVEL]}
ZONE = {"name": "zone", "bins": [0, 2, 5, 50], "level": [LEVEL]}
BOTH = {"name": "mode_by_zone", "pair": ["mode", "zone"], "level": [LEVEL]}


def pair_survey(**keys: Any) -> Survey:
    """A survey of `mode`, `zone` and their pair `mode_by_zone`, with 3 × 3 values; `keys` replace its keys."""
    return small_survey(MODE, ZONE, BOTH, **keys)
