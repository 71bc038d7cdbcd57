"""Decodes stored publications. A damaged publication is skipped, to keep all others usable."""

from collections.abc import Callable
from typing import TypeVar

import msgspec
import structlog
from prometheus_client import CollectorRegistry, Counter

from ldpstream.surveys import Survey

log = structlog.get_logger("ldpstream.estimator")
T = TypeVar("T")
MOST_KEYS = 10_000  # keys remembered, so that each is counted and logged once


class StoredReader:
    def __init__(self, survey: Survey, registry: CollectorRegistry | None = None) -> None:
        self._survey, self._skipped, self._counter = survey.name, set[str](), None
        if registry is not None:
            self._counter = Counter(
                "ldpstream_estimates_undecodable",
                "Stored publications skipped because this version cannot decode them.",
                ["survey", "store"],
                registry=registry,
            )
            for store in ("redis", "kafka", "folder"):
                self._counter.labels(self._survey, store)  # exports 0 before the first one

    def decode(self, decode: Callable[[bytes], T], raw: bytes | None, store: str, key: str) -> T | None:
        """Returns the decoded value; None if nothing is stored, or if the value cannot be decoded."""
        if raw is None:
            return None
        try:
            return decode(raw)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            if f"{store} {key}" not in self._skipped and len(self._skipped) < MOST_KEYS:
                self._skipped.add(f"{store} {key}")
                log.error("publication skipped", survey=self._survey, store=store, key=key, error=str(error))
                if self._counter is not None:
                    self._counter.labels(self._survey, store).inc()
            return None
