"""`ldpstream move` with a real Kafka and a real Redis, while devices report and retry."""

import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaAdminClient

from ldpstream.agents import Record, tally
from ldpstream.engines.checkpoint import MAX_MS, Checkpoint
from ldpstream.engines.folder.backup import backup
from ldpstream.engines.folder.data_folder import FILE, PARTITION, DataFolder
from ldpstream.engines.folder.folder_log import FolderLog
from ldpstream.engines.folder.folder_results import FolderResults
from ldpstream.engines.kafka.log_position import LogClient
from ldpstream.engines.kafka.redis_connection import connect
from ldpstream.engines.kafka.redis_results import RedisResults
from ldpstream.engines.kafka.redis_store import RedisCountStore
from ldpstream.engines.kafka.topic_keeper import TopicKeeper
from ldpstream.publishing.estimates.publication import Publication
from ldpstream.publishing.results import KeptResults
from ldpstream.runtime.clock import now_ms
from ldpstream.runtime.settings import Settings
from ldpstream.services import move as moving
from ldpstream.services.move import MoveRefused
from ldpstream.surveys.envelope import decode_envelope
from ldpstream.surveys.life.keeper import OpenSurveyChanged
from ldpstream.surveys.life.watch import SurveyWatch
from tests.conftest import Figures
from tests.faults.invariant import numbers_of
from tests.ldpstream.test_serve import Served

from .retries import REPORTS, Devices
from .rig import PATIENCE_S, start_command, wait_until, with_collector

STEP_S, CLIENTS, PARTITIONS = 10, 3, 4
Published = list[Publication]


class Site:
    """`serve` with data, then Kafka, Redis and the services."""

    def __init__(self, folder: Path, kafka: str, url: str, step_s: int) -> None:
        self.served, self.folder, self._started = Served(folder, step_s), folder, ExitStack()
        file = self.served.survey_file
        file.write_text(file.read_text().replace("one-machine", f"moved-{time.time_ns()}"))
        self.survey = self.served.survey
        self.settings = Settings(kafka=kafka, redis=url, partitions=PARTITIONS)
        self.environment = with_collector(self.folder) | {
            "LDPSTREAM_KAFKA": kafka, "LDPSTREAM_REDIS": url, "LDPSTREAM_PARTITIONS": str(PARTITIONS),
            "LDPSTREAM_SURVEY": str(file), "LDPSTREAM_GATEWAY_RATE": "1000000",
            "LDPSTREAM_GATEWAY_PORT": str(self.served.gateway), "LDPSTREAM_PAGE_PORT": str(self.served.page),
        }  # fmt: skip

    def start_services(self) -> None:
        for command in ("agent", "estimate", "gateway"):
            process = start_command(self.folder / f"{command}.log", self.environment, command, self.served.survey_file)
            self._started.callback(process.wait)
            self._started.callback(process.kill)

    def said(self) -> str:
        return "\n".join(path.read_text()[-2000:] for path in self.folder.glob("*.log"))

    def move(self) -> subprocess.CompletedProcess[str]:
        line = [sys.executable, "-m", "ldpstream", "move", "--data", str(self.served.data)]
        return subprocess.run(line, env=self.environment, capture_output=True, text=True, timeout=PATIENCE_S)

    def records(self) -> list[Record]:
        with closing(DataFolder(self.served.data)) as folder:
            found = FolderLog(folder, self.survey, now_ms).read(0, 10**6)
        return [Record(*one) for one in zip(found.offsets, found.appended_ms, found.values, strict=True) if one[2]]

    def history(self) -> Published:
        with closing(DataFolder(self.served.data)) as folder:
            return KeptResults(self.survey, FolderResults(folder, self.survey)).history()

    def moved_history(self) -> Published:
        with closing(connect(self.settings)) as redis:
            return KeptResults(self.survey, RedisResults(self.survey, redis)).history()

    @contextmanager
    def store(self) -> Iterator[RedisCountStore]:
        with connect(self.settings) as client:
            yield RedisCountStore(self.survey, client)

    def changed_file(self) -> Path:
        """Returns a file with another survey of the same name."""
        file = self.folder / "changed.toml"
        file.write_text(self.served.survey_file.read_text().replace("lateness_steps = ", "lateness_steps = 1"))
        return file

    def close(self) -> None:
        self._started.close()
        self.served.kill()


@pytest.fixture
def step_s() -> int:
    return STEP_S


@pytest.fixture
def site(kernels: None, tmp_path: Path, kafka: str, redis_url: str, step_s: int) -> Iterator[Site]:
    made = Site(tmp_path, kafka, redis_url, step_s)
    made.served.start()
    made.served.wait_until_ready()
    yield made
    made.close()


def post_some(site: Site, n: int, seed: int = 1) -> list[bytes]:
    """Posts envelopes with the keys 0 to n - 1. Returns them."""
    device = Devices(site.survey, [site.served.gateway], seed)
    bodies = [device._envelope() for _ in range(n)]
    assert post_again(site, bodies) == [202] * n
    return bodies


def post_again(site: Site, bodies: list[bytes]) -> list[int]:
    device = Devices(site.survey, [site.served.gateway], 0)
    kind = "application/octet-stream"
    return [device._post(body, {"Content-Type": kind, "Idempotency-Key": f"{i:016}"}) for i, body in enumerate(bodies)]


@pytest.mark.parametrize("keys", ["moved", "forgotten"])
@pytest.mark.parametrize("step_s", [3600])  # the step stays open
def test_a_report_that_was_counted_before_the_move_counts_once(site: Site, keys: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The control forgets the keys: then every report that is sent again counts twice."""
    bodies = post_some(site, 30)
    assert site.served.stop() == 0
    if keys == "forgotten":
        write = moving._Move._write_counts

        def forgetful(self: moving._Move, counted: Checkpoint) -> Checkpoint:
            counted.keys.clear()
            counted.n_keys.clear()
            return write(self, counted)

        monkeypatch.setattr(moving._Move, "_write_counts", forgetful)
    moving.move(site.served.data, site.settings)
    site.start_services()
    site.served.wait_until_ready()
    wait_until(lambda: post_again(site, bodies) == [202] * len(bodies), site.said)
    new = post_some(site, 5, seed=2)
    times = 1 if keys == "moved" else 2
    wanted = REPORTS * (times * len(bodies) + len(new))
    with site.store() as store:
        wait_until(lambda: sum(table.n for table in store.tables(range(10)).values()) >= wanted, site.said)
        assert sum(table.n for table in store.tables(range(10)).values()) == wanted
        assert store.positions()[PARTITION] > len(bodies)


def test_devices_report_and_retry_while_the_data_move(site: Site, figures: Figures) -> None:
    """All published steps together have exactly the acknowledged reports; the estimates before the move stay as they were."""
    served, survey = site.served, site.survey
    devices = [Devices(survey, [served.gateway], seed) for seed in range(CLIENTS)]
    for device in devices:
        device.start()
    wait_until(lambda: (served.status()["latest_step"] or 0) >= 1, served.said)
    assert served.stop() == 0
    began_s = time.monotonic()
    done = site.move()
    took_s = time.monotonic() - began_s
    assert done.returncode == 0, done.stderr
    before = site.history()
    assert before
    assert site.moved_history() == before
    site.start_services()
    served.wait_until_ready()
    seen = sum(device.answers[202] for device in devices)
    wait_until(lambda: sum(device.answers[202] for device in devices) > seen + 300, site.said)
    for device in devices:
        device.finish()
    for device in devices:
        device.join(PATIENCE_S)
        assert not device.is_alive()
    last = survey.step_at(now_ms())

    def complete() -> set[int]:
        return {p.step for p in site.moved_history() if p.span == "step" and p.complete}

    wait_until(lambda: complete() >= set(range(last + 1)), site.said)
    after = {p.key: p for p in site.moved_history()}
    assert [after[p.key] for p in before] == before
    accepted = set[bytes]().union(*(device.accepted for device in devices))
    total = sum(p.reports for p in after.values() if (p.span, p.attribute) == ("step", "zone") and p.step <= last)
    retried = sum(device.answers[202] for device in devices)
    figures["a move under load"] = Counter(
        {
            "envelopes acknowledged": len(accepted),
            "posts acknowledged": retried,
            "publications": len(before),
            "ms": round(took_s * 1000),
        }
    )
    assert total == REPORTS * len(accepted)
    old = {one.value for one in site.records()}
    assert old < accepted


@pytest.mark.parametrize("step_s", [5])
def test_if_redis_is_lost_after_the_move_no_step_is_falsely_complete(site: Site) -> None:
    """The steps that were open at the move may lack reports, and are incomplete; later steps are complete and lack none."""
    bodies = post_some(site, 10)
    assert site.served.stop() == 0
    assert site.move().returncode == 0
    moved_ms = now_ms()
    with connect(site.settings) as redis:
        redis.flushdb()
    site.start_services()
    site.served.wait_until_ready()
    wait_until(lambda: set(post_again(site, bodies[:5])) <= {202, 422}, site.said)  # 422: the step has closed meanwhile
    sent: list[bytes] = []
    last = site.survey.step_at(now_ms()) + 3
    while site.survey.step_at(now_ms()) <= last:
        sent += post_some(site, 2, seed=2 + len(sent))
        time.sleep(1)
    wait_until(lambda: (site.served.status()["latest_step"] or 0) >= last, site.said)
    with site.store() as store:
        missing = store.heads()[PARTITION].missing
    assert missing is not None
    assert moved_ms < missing.until_ms < now_ms()
    wanted = Counter(decode_envelope(body).step for body in sent)
    steps = [p for p in site.moved_history() if (p.span, p.attribute) == ("step", "zone") and p.step <= last]
    assert [p.complete for p in steps] == [
        site.survey.opens_ms(p.step) - site.survey.skew_ms >= missing.until_ms for p in steps
    ]
    complete = {p.step: p.reports for p in steps if p.complete}
    assert last in complete
    assert complete == {step: REPORTS * wanted[step] for step in complete}


@pytest.mark.parametrize("step_s", [3600])
def test_a_killed_move_runs_again(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """The move is killed before and after every write, and runs again. The folder was restored from a copy, so reports may be
    missing."""
    post_some(site, 10)
    assert site.served.stop() == 0
    backup(site.served.data / FILE, site.folder / "copy")
    (site.folder / "copy").replace(site.served.data / FILE)
    wanted = {key: numbers_of(table) for key, table in tally(site.survey, site.records()).counts.items()}

    class Killed(Exception): ...

    writes: list[tuple[Any, str]] = [
        (moving._Move, "begin"), (KafkaAdminClient, "delete_records"), (RedisCountStore, "commit"), (RedisCountStore, "prune"),
        (moving, "write_kept"), (RedisResults, "save"), (moving._Move, "copy"),
    ]  # fmt: skip
    for owner, name in writes:
        for late in (False, True):
            with monkeypatch.context() as patched:
                real = getattr(owner, name)

                def dying(*arguments: Any, real: Any = real, late: bool = late) -> Any:
                    if late:
                        real(*arguments)
                    raise Killed

                patched.setattr(owner, name, dying)
                try:
                    moving.move(site.served.data, site.settings)
                except Killed:
                    continue
                pytest.fail(f"{name} was not called")
    [done] = moving.move(site.served.data, site.settings)
    assert (done.report_keys, done.publications) == (10, 0)
    with site.store() as store:
        assert {key: numbers_of(table) for key, table in store.tables(range(10)).items()} == wanted
        missing = store.heads()[PARTITION].missing
    assert missing is not None
    assert (missing.until_ms, missing.below_offset) == (MAX_MS, 1)  # until the first report that Kafka receives
    with closing(connect(site.settings)) as redis:  # nothing was published: the estimator begins at the folder's first step
        progress = KeptResults(site.survey, RedisResults(site.survey, redis)).progress()
    assert progress is not None
    assert (progress.first_step, progress.next_step) == (0, 0)
    other = TopicKeeper(site.settings, SurveyWatch([site.changed_file()]))
    with pytest.raises(OpenSurveyChanged):  # a gateway finds that the file has changed since
        other.check_topics(next(iter(other._watch.surveys.values())).survey, "gateway")
    again = site.move()
    assert (again.returncode, again.stderr.count("were moved before; run the services")) == (2, 1)
    site.served.start()
    assert site.served.process.wait(PATIENCE_S) == 2
    assert "the data were moved to Kafka and Redis" in site.served.said()


def refused(site: Site) -> str:
    """Moves, and returns the one line that says why not."""
    done = site.move()
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    return done.stderr


@pytest.mark.parametrize("step_s", [3600])
def test_a_clock_that_is_ahead_and_what_others_wrote_are_refused_in_one_line(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The move checks this machine's clock and Kafka's before it begins, and a refused move changes nothing."""
    post_some(site, 3)
    assert "another ldpstream process uses this data folder" in refused(site)
    assert site.served.stop() == 0

    def jump(ms: int) -> None:
        with closing(DataFolder(site.served.data)) as folder, folder.write() as db:
            db.execute("UPDATE survey SET newest_ms = newest_ms + ?", (ms,))

    jump(7_200_000)
    assert " s ahead of this machine's clock; wait for this time, then run move again" in refused(site)
    with monkeypatch.context() as ahead, pytest.raises(MoveRefused, match="ahead of Kafka's clock; wait for this time"):
        ahead.setattr(moving, "now_ms", lambda: now_ms() + 7_300_000)
        moving.move(site.served.data, site.settings)
    jump(-7_200_000)
    with site.store() as store:
        store.commit(1, None, Checkpoint(5, log_id="another", writer="another"))
    assert f"holds counts of survey {site.survey.name} that this folder did not write" in refused(site)
    with connect(site.settings) as redis:
        redis.flushdb()
    with closing(LogClient(site.settings)) as client:
        client.mark(site.survey.reports_topic, [2])
    assert f"topic {site.survey.reports_topic} holds records that this folder did not write" in refused(site)
    with closing(DataFolder(site.served.data)) as folder:
        assert folder.moved() == "here"
    site.served.start()
    site.served.wait_until_ready()
