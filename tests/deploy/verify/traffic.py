"""Devices that post a known data set through the gateways' Service, and the check that everything is counted once."""

import http.client
import random
import secrets
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing

import msgspec
import numpy as np

from ldpstream.engines import PaneKey
from ldpstream.engines.kafka.clients import TopicReader
from ldpstream.engines.kafka.redis_connection import connect
from ldpstream.engines.kafka.redis_store import RedisCountStore
from ldpstream.gateway.http.bodies import BATCH
from ldpstream.mechanisms import CountTable
from ldpstream.publishing.estimates.publication import Publication
from ldpstream.runtime.clock import now_ms
from ldpstream.runtime.settings import Settings
from ldpstream.surveys import Survey, seal
from tests.deploy.verify.engine import VerifyError, wait_for
from tests.deploy.verify.image import check

ENVELOPES, REPORTS = 5, 16  # of a body; of an envelope
PAUSE_S, RETRY_S = 0.1, 0.3
POSTS_OF_A_CONNECTION = 20  # then the Service chooses a gateway again
ANSWER_S = 60
READ_MS = 60_000


class Traffic(threading.Thread):
    """Posts random reports of the present step until `finish`, or until the survey ends.

    Each body has an `Idempotency-Key`, and is posted again until a gateway answers 202. Then its reports are in `tables`.

    Args:
        survey: the survey.
        host: name of the Service.
        token: a token of the gateways.
        seed: of values and reports.

    Attributes:
        tables: the counts of all acknowledged reports.
        answers: number of answers by status; 0 without an answer.
        longest_s: longest time from the first attempt of a body to its acknowledgement.
        error: the refusal or error that ended the thread; empty if there was none.
    """

    def __init__(self, survey: Survey, host: str, token: str, seed: int) -> None:
        super().__init__(daemon=True)
        self.survey, self._host, self._token = survey, host, token
        self._random, self._rng = random.Random(seed), np.random.default_rng(seed)
        self._connection: http.client.HTTPConnection | None = None
        self._over = threading.Event()
        self.tables: dict[PaneKey, CountTable] = {}
        self.answers: Counter[int] = Counter()
        self.longest_s, self.error = 0.0, ""

    def run(self) -> None:
        """Posts bodies."""
        try:
            self._post_bodies()
        except Exception as error:
            self.error = repr(error)
            raise

    def _post_bodies(self) -> None:
        while not self._over.wait(PAUSE_S) and not self.error:
            step = self.survey.step_at(now_ms())
            if step < 0:
                continue
            if self.survey.n_steps is not None and step >= self.survey.n_steps:
                return
            body, tables = self.body(step)
            self._deliver(body)
            if not self.error:
                for key, table in tables.items():
                    self.tables[key] = self.tables[key] + table if key in self.tables else table

    def body(self, step: int) -> tuple[bytes, dict[PaneKey, CountTable]]:
        """Returns a body with new reports of a step, and their counts."""
        envelopes, tables = [], dict[PaneKey, CountTable]()
        for _ in range(ENVELOPES):
            attribute = self._random.randrange(len(self.survey.mechanisms))
            level = self._random.randrange(len(self.survey.mechanisms[attribute]))
            mechanism = self.survey.mechanisms[attribute][level]
            reports = mechanism.simulate(self._rng.integers(0, mechanism.k, REPORTS), self._rng)
            envelopes.append(seal(self.survey, attribute, level, step, reports))
            key, table = PaneKey(attribute, level, step), mechanism.tabulate(reports)
            tables[key] = tables[key] + table if key in tables else table
        return msgspec.msgpack.encode(envelopes), tables

    def post(self, body: bytes, key: str) -> tuple[int, str]:
        """Posts a body once. Returns the status and the text of the answer; 0 without an answer."""
        if self._connection is None or self.answers.total() % POSTS_OF_A_CONNECTION == 0:
            self._close()
            self._connection = http.client.HTTPConnection(self._host, timeout=ANSWER_S)
        headers = {"Content-Type": BATCH, "Idempotency-Key": key, "Authorization": f"Bearer {self._token}"}
        try:
            self._connection.request("POST", "/v1/reports", body, headers)
            answer = self._connection.getresponse()
            status, text = answer.status, answer.read().decode()
        except (OSError, http.client.HTTPException) as error:
            self._close()
            status, text = 0, repr(error)
        self.answers[status] += 1
        return status, text

    def stop(self) -> None:
        """Stops after the present body."""
        self._over.set()

    def finish(self) -> None:
        """Stops after the present body, which must be acknowledged.

        Raises:
            VerifyError: if a body was refused.
        """
        self.stop()
        self.join(ANSWER_S * 10)
        if self.is_alive() or self.error:
            raise VerifyError(f"survey {self.survey.name}: a body was not acknowledged: {self.error or dict(self.answers)}")

    @property
    def acknowledged(self) -> int:
        """Number of acknowledged reports."""
        return sum(table.n for table in [*self.tables.values()])

    def _deliver(self, body: bytes) -> None:
        key, began = secrets.token_urlsafe(16), time.monotonic()
        while True:
            status, text = self.post(body, key)
            if status == 202:
                self.longest_s = max(self.longest_s, time.monotonic() - began)
                return
            if status in {401, 422}:
                self.error = f"status {status} after {time.monotonic() - began:.0f} s: {text}"
                return
            time.sleep(RETRY_S)

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def tables_of(traffic: list[Traffic]) -> dict[PaneKey, CountTable]:
    """The counts of the reports that all these devices posted."""
    total: dict[PaneKey, CountTable] = {}
    for one in traffic:
        for key, table in one.tables.items():
            total[key] = total[key] + table if key in total else table
    return total


def published(settings: Settings, survey: Survey) -> list[Publication]:
    """Every publication in the topic, also those that a later one replaced."""
    with closing(TopicReader(settings, survey.estimates_topic, READ_MS)) as reader:
        records = reader.records(reader.begin(), reader.end())
        return [msgspec.json.decode(record.value, type=Publication) for record in records if record.value]


def check_counted(traffic: list[Traffic], settings: Settings, states: Callable[[], str]) -> str:
    """Waits until every step with reports is published complete, then compares counts and publications with the reports.

    Args:
        traffic: the devices of one survey, which have finished.
        settings: those of an estimator.
        states: says what an error should say about the pods.

    Returns:
        One line about the counts.

    Raises:
        VerifyError: if a step is not complete in time, a complete publication lacks a report or has one too many, or a count
            differs.
    """
    survey, wanted, found = traffic[0].survey, tables_of(traffic), list[Publication]()

    def complete() -> bool:
        found[:] = published(settings, survey)
        return not incomplete(survey, wanted, found)

    wait_for(complete, lambda: f"survey {survey.name} complete, lacking {sorted(incomplete(survey, wanted, found))} {states()}")
    check(f"survey {survey.name}: falsely complete publications", falsely_complete(survey, wanted, found), [])
    with connect(settings) as client:
        store = RedisCountStore(survey, client)
        counted, rejected = store.tables(range(10**6)), sum(store.rejected().values())
    different = [key for key in wanted.keys() | counted.keys() if wanted.get(key) != counted.get(key)]
    check(f"survey {survey.name}: panes whose counts differ from the tally", different, [])
    check(f"survey {survey.name}: rejected envelopes", rejected, 0)
    answers = Counter[int]()
    for one in traffic:
        answers += one.answers
    others = ", ".join(f"{n} × {status or 'no answer'}" for status, n in sorted(answers.items()) if status != 202) or "none"
    return (
        f"survey {survey.name}: all {sum(table.n for table in wanted.values()):,} acknowledged reports of "
        f"{len({key.step for key in wanted})} steps are counted once; none of {len(found)} publications was falsely complete, "
        f"{sum(not p.complete for p in found)} were incomplete at first; answers other than 202: {others}; "
        f"longest time to 202: {max(one.longest_s for one in traffic):.1f} s"
    )


def _reports(survey: Survey, wanted: dict[PaneKey, CountTable]) -> Counter[tuple[str, int]]:
    """The number of reports by attribute and step."""
    reports = Counter[tuple[str, int]]()
    for key, table in wanted.items():
        reports[survey.attributes[key.attribute].name, key.step] += table.n
    return reports


def incomplete(survey: Survey, wanted: dict[PaneKey, CountTable], found: Sequence[Publication]) -> set[tuple[str, int]]:
    """The attributes and steps with reports that have no complete publication."""
    return _reports(survey, wanted).keys() - {(p.attribute, p.step) for p in found if p.complete and p.span == "step"}


def falsely_complete(survey: Survey, wanted: dict[PaneKey, CountTable], found: Sequence[Publication]) -> list[str]:
    """The complete publications of a step or window with too few or too many reports."""
    reports = _reports(survey, wanted)

    def right(p: Publication) -> int:
        first = p.step - (survey.window_steps - 1 if p.span == "window" else 0)
        return sum(reports[p.attribute, step] for step in range(max(first, 0), p.step + 1))

    complete = [p for p in found if p.complete and p.span in {"step", "window"}]
    return [f"{p.key}: {p.reports} reports, expected {right(p)}" for p in complete if p.reports != right(p)]
