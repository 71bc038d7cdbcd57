"""The surveys whose reports a gateway takes, and their documents for devices."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

import msgspec

from ldpstream.engines.gateway_log import GatewayLog
from ldpstream.gateway.http.problems import Problem, unknown_at_present
from ldpstream.surveys import Survey
from ldpstream.surveys.device_survey import DeviceSurvey
from ldpstream.surveys.signatures import Signature


class ServedSurvey(DeviceSurvey, frozen=True, kw_only=True):
    """The device survey, the text of the survey's file (`toml`), and the survey's signatures, the latest one last.

    `signature` is the latest one, for devices that read one; None if there is none.
    """

    toml: str
    signature: Signature | None
    signatures: list[Signature]


class ListedSurvey(msgspec.Struct, frozen=True, kw_only=True):
    """A survey in the list of surveys. `ends` is the end of the last step; None for a survey without end."""

    name: str
    fingerprint: str
    title: str | None
    ends: datetime | None


class SurveyList(msgspec.Struct, frozen=True):
    """All surveys of a gateway, by name."""

    surveys: list[ListedSurvey]


class GatewaySurveys:
    """The surveys of a gateway.

    Attributes:
        incomplete: True if there may be further surveys, in broken files.
        logs: the logs of the surveys that have one, by fingerprint.
    """

    def __init__(self) -> None:
        self.by_fingerprint: dict[bytes, Survey] = {}
        self.incomplete = False
        self.logs: dict[bytes, GatewayLog] = {}
        self._documents: dict[bytes, bytes] = {}

    @property
    def ready(self) -> bool:
        """True if the log of a survey takes reports."""
        return any(log.ready for log in list(self.logs.values()))

    def states(self) -> Iterator[tuple[str, bool]]:
        """Yields the name of each survey, and True if the survey's log takes reports."""
        for fingerprint, survey in list(self.by_fingerprint.items()):
            log = self.logs.get(fingerprint)
            yield survey.name, log is not None and log.ready

    # ---- changes

    def put(self, survey: Survey, toml: str, signatures: Sequence[Signature] = ()) -> None:
        self.by_fingerprint[survey.fingerprint] = survey
        latest, keys = signatures[-1] if signatures else None, msgspec.structs.asdict(survey.device_survey)
        served = ServedSurvey(**keys, toml=toml, signature=latest, signatures=list(signatures))
        self._documents[survey.fingerprint] = msgspec.json.encode(served)

    def close(self, fingerprint: bytes) -> None:
        """Takes the log from a survey, and closes the log: the survey's reports get 503."""
        if (log := self.logs.pop(fingerprint, None)) is not None:
            log.close()

    def remove(self, fingerprint: bytes) -> None:
        """Removes a survey."""
        del self.by_fingerprint[fingerprint], self._documents[fingerprint]
        self.close(fingerprint)

    # ---- for requests

    def log_of(self, survey: Survey) -> GatewayLog:
        """Returns the survey's log.

        Raises:
            Problem: "survey unavailable", if the survey has no log at present.
        """
        log = self.logs.get(survey.fingerprint)
        if log is None:
            detail = "this gateway cannot use the survey's log at present; no report of this attempt is in the log"
            raise Problem("survey unavailable", detail)
        return log

    def listing(self) -> bytes:
        """Returns a `SurveyList` as JSON."""
        surveys = sorted(self.by_fingerprint.values(), key=lambda survey: survey.name)
        return msgspec.json.encode(SurveyList([_listed(survey) for survey in surveys]))

    def document(self, fingerprint: str) -> bytes:
        """Returns the `ServedSurvey` with this fingerprint, in hexadecimal digits, as JSON.

        Raises:
            Problem: "survey unavailable" if a broken file may hold the survey, otherwise "not found".
        """
        try:
            return self._documents[bytes.fromhex(fingerprint)]
        except (KeyError, ValueError):
            if self.incomplete:
                raise unknown_at_present() from None
            raise Problem("not found", "this gateway has no such survey; GET /v1/surveys lists its surveys") from None

    def only_document(self) -> bytes:
        """Returns the only survey's `ServedSurvey` as JSON.

        Raises:
            Problem: "not found", unless the gateway has exactly one survey.
        """
        if len(self._documents) != 1:
            raise Problem("not found", "this gateway has not exactly one survey; GET /v1/surveys lists its surveys")
        return next(iter(self._documents.values()))


def _listed(survey: Survey) -> ListedSurvey:
    ends = None if survey.n_steps is None else datetime.fromtimestamp(survey.opens_ms(survey.n_steps) / 1000, UTC)
    return ListedSurvey(name=survey.name, fingerprint=survey.fingerprint.hex(), title=survey.title, ends=ends)
