"""Decodes stored publications. A damaged publication is skipped, to keep all others usable."""

from collections.abc import Callable
from typing import TypeVar

import msgspec
import structlog

from ldpstream.surveys import Survey

log = structlog.get_logger("ldpstream.estimator")
T = TypeVar("T")
MOST_KEYS = 10_000  # keys remembered, so that each is logged once


class StoredReader:
    def __init__(self, survey: Survey, store: str) -> None:
        self._survey, self._store, self._skipped = survey.name, store, set[str]()

    def decode(self, decode: Callable[[bytes], T], raw: bytes | None, key: str) -> T | None:
        """Returns the decoded value; None if nothing is stored, or if the value cannot be decoded."""
        if raw is None:
            return None
        try:
            return decode(raw)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            if key not in self._skipped and len(self._skipped) < MOST_KEYS:
                self._skipped.add(key)
                log.error("publication skipped", survey=self._survey, store=self._store, key=key, error=str(error))
            return None
