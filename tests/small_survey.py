"""A survey in a line or two, for tests to which most of its keys do not matter."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from ldpstream.planning.toml_text import document_text
from ldpstream.surveys import Survey, parse_survey

START = datetime(2026, 1, 5, tzinfo=UTC)


def small_survey(*attributes: Mapping[str, Any], **keys: Any) -> Survey:
    """A survey of these attributes: steps of a minute, windows of two steps, no late reports, smp. `keys` replace its keys."""
    return parse_survey(_document(attributes, keys))


def small_text(*attributes: Mapping[str, Any], **keys: Any) -> str:
    """The file of such a survey, in TOML."""
    return document_text(_document(attributes, keys))


def _document(attributes: Sequence[Mapping[str, Any]], keys: Mapping[str, Any]) -> dict[str, Any]:
    head = {"name": "small", "start": START, "step_seconds": 60, "window_steps": 2, "lateness_steps": 0, "collection": "smp"}
    return head | {"attribute": list(attributes)} | dict(keys)
