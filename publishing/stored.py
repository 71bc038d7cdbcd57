"""Decodes stored publications. A damaged publication is skipped, to keep all others usable."""

from collections.abc import Callable

import msgspec
import structlog

from ldpstream.publishing.estimates.publication import Publication
from ldpstream.surveys import Survey

log = structlog.get_logger("ldpstream.estimator")
MOST_KEYS = 10_000  # keys remembered, so that each is logged once


class StoredReader:
    def __init__(self, survey: Survey, store: str, decode: Callable[[bytes], Publication]) -> None:
        self._survey, self._store, self._decode, self._skipped = survey.name, store, decode, set[str]()

    def read(self, key: str, raw: bytes | None) -> Publication | None:
        """Returns the decoded publication; None if nothing is stored, or if it cannot be decoded."""
        if raw is None:
            return None
        try:
            return self._decode(raw)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            if key not in self._skipped and len(self._skipped) < MOST_KEYS:
                self._skipped.add(key)
                log.error("publication skipped", survey=self._survey, store=self._store, key=key, error=str(error))
            return None
