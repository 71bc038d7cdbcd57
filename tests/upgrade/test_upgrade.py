"""The stores of every landed version against the present code: read, or refused in one line, and never overwritten.

`python -m tests.upgrade.write` renews `tests/upgrade/present/`. When a format lands, copy that folder to
`tests/upgrade/landed/COMMIT/`. The copies never change.
"""

import json
import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import redis

from ldpstream.agents import PartitionFold, Record
from ldpstream.device import Device, Wallet
from ldpstream.device.errors import DeviceError
from ldpstream.device.files.sqlite_file import DEVICE, FORMER, WALLET
from ldpstream.engines import PaneKey
from ldpstream.engines.folder.data_folder import APPLICATION, FILE, FORMAT, DataFolder
from ldpstream.engines.folder.folder_log import FolderLog
from ldpstream.engines.folder.survey_keeper import FolderKeeper
from ldpstream.engines.formats import OtherFormat
from ldpstream.engines.kafka.redis_connection import connect
from ldpstream.engines.kafka.redis_results import RedisResults
from ldpstream.engines.kafka.redis_store import RedisCountStore
from ldpstream.mechanisms import CountTable
from ldpstream.publishing.results import KeptResults
from ldpstream.publishing.schedule import Schedule
from ldpstream.runtime.settings import Settings
from ldpstream.services.counting import LogCounter
from ldpstream.services.engine import FolderEngine
from ldpstream.surveys import Survey, load_survey
from ldpstream.surveys.life.folder import SurveyFolder
from ldpstream.surveys.life.keeper import KeptUnreadable
from tests.publishing.schedule_rig import ScheduleLog, Told, count_markers
from tests.services.rig import RedisNode, missing
from tests.upgrade.write import HERE, PARTITIONS, PRESENT, STEPS, SURVEY, dumped, restore, written

LANDED = sorted((HERE / "landed").iterdir())
OURS = load_survey(SURVEY)
RENEW = "python -m tests.upgrade.write"
Files = dict[str, Any]


def read(folder: Path) -> Files:
    return {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in folder.glob("*.json")}


@pytest.fixture(scope="session")
def node() -> Iterator[RedisNode]:
    if reason := missing(kafka=False):
        (pytest.fail if os.environ.get("CI") else pytest.skip)(reason)
    with RedisNode(append_fsync=None) as node:
        yield node


@pytest.fixture
def client(node: RedisNode) -> Iterator["redis.Redis"]:
    with redis.Redis.from_url(node.url) as client:
        yield client
        client.flushall()


@pytest.fixture(params=[*LANDED, PRESENT], ids=lambda folder: folder.name)
def state(request: pytest.FixtureRequest) -> Files:
    return read(request.param)


def same_text(state: Files) -> bool:
    return bool(state["survey"]["canonical"] == OURS.canonical)


def log_of(state: Files) -> list[list[Record]]:
    return [[Record(at, ms, bytes.fromhex(raw), bytes.fromhex(key)) for at, ms, key, raw in part] for part in state["log"]]


def counted(survey: Survey, log: list[list[Record]]) -> dict[PaneKey, CountTable]:
    """Returns the tables of a log that is counted from its beginning."""
    total: dict[PaneKey, CountTable] = {}
    for part in log:
        fold = PartitionFold(survey, None)
        fold.feed(part)
        change = fold.changes()
        for key, table in ({} if change is None else change.panes).items():
            total[key] = total[key] + table if key in total else table
    return total


# ---- the lock


def locked(found: Files, kept: Files) -> list[str]:
    """The objects whose schema differs although their format is the same."""
    same_format = [name for name in kept if name in found and found[name]["format"] == kept[name]["format"]]
    return [name for name in same_format if found[name]["schema"] != kept[name]["schema"]]


def test_no_schema_changes_without_its_format(node: RedisNode) -> None:
    found = json.loads(json.dumps(written()["formats"]))
    for folder in LANDED:
        changed = locked(found, read(folder)["formats"])
        assert not changed, f"{changed}: the schema differs from {folder.name}'s; raise the format, then run: {RENEW}"
    assert found == read(PRESENT)["formats"], f"if no format of an object landed with this schema, run: {RENEW}"


def test_the_lock_finds_a_changed_schema() -> None:
    kept = read(PRESENT)["formats"]
    for name, entry in kept.items():
        more, raised = {"format": entry["format"], "schema": [*entry["schema"], "more"]}, entry["format"] + 1
        assert locked(kept | {name: more}, kept) == [name]
        assert locked(kept | {name: more | {"format": raised}}, kept) == []


# ---- surveys and devices


def test_a_text_of_the_same_format_means_the_same(state: Files) -> None:
    ours, kept = json.loads(OURS.canonical), json.loads(state["survey"]["canonical"])
    if ours.get("format", 1) == kept.get("format", 1):
        assert same_text(state)
        return
    assert state["survey"]["fingerprint"] != OURS.fingerprint.hex()


def test_a_device_goes_on_or_refuses(state: Files, tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "device")) as connection, connection:
        connection.executescript("\n".join(state["devices"]["device"]["sql"]))
        connection.execute(f"PRAGMA user_version = {state['devices']['device']['format']}")
        envelopes = [bytes(row[0]) for row in connection.execute("SELECT envelope FROM sent ORDER BY step, attribute")]
    before = (tmp_path / "device").read_bytes()
    try:
        device = Device(OURS, tmp_path / "device", expect_enrolled=True, consent="simulated")
    except DeviceError as error:
        read_format = state["devices"]["device"]["format"] in (DEVICE, FORMER[DEVICE])
        assert not same_text(state) if read_format else f"this program needs format {DEVICE}" in str(error)
        assert "\n" not in str(error)
        assert (tmp_path / "device").read_bytes() == before
    else:
        assert same_text(state)
        assert sorted(report.envelope for report in device.waiting()) == sorted(envelopes)


def test_a_wallet_keeps_its_charges_or_is_refused(state: Files, tmp_path: Path) -> None:
    """A survey whose fingerprint changed stays in the budget too, because the device has made its reports."""
    with closing(sqlite3.connect(tmp_path / "wallet")) as connection, connection:
        connection.executescript("\n".join(state["devices"]["wallet"]["sql"]))
        connection.execute(f"PRAGMA user_version = {state['devices']['wallet']['format']}")
    before = (tmp_path / "wallet").read_bytes()
    if state["devices"]["wallet"]["format"] not in (WALLET, FORMER[WALLET]):
        with pytest.raises(DeviceError, match=f"this program needs format {WALLET};"):
            Wallet(tmp_path / "wallet", for_ever=1000.0)
        assert (tmp_path / "wallet").read_bytes() == before
        return
    spent = Wallet(tmp_path / "wallet", for_ever=1000.0).spent().surveys
    assert [(s.survey, s.pin[:16], s.left) for s in spent] == [(OURS.name, state["survey"]["fingerprint"], False)]
    assert spent[0].reports > 0


# ---- the service


def test_the_log_and_the_counts_agree_or_are_refused(state: Files, node: RedisNode, client: "redis.Redis") -> None:
    """A restarted service continues with exactly the counts of the log. If the canonical text differs, the service neither
    reads nor writes."""
    restore(client, state["redis"])
    before, log = dumped(client), log_of(state)
    store, told = RedisCountStore(OURS, connect(Settings(redis=node.url))), Told()
    position = ScheduleLog(*[[r.appended_ms for r in part] for part in log])
    schedule = Schedule(OURS, store, position, KeptResults(OURS, RedisResults(OURS, client)), [told])
    if not same_text(state):
        kept = json.loads(state["survey"]["canonical"]).get("format", 1)
        end_ms, said = OURS.closes_ms(STEPS), rf"the canonical text has format {kept}, .* give survey upgrade a new name"
        reads: list[Callable[[], Any]] = [lambda: store.load(0), store.heads, store.snapshot, lambda: schedule.run(end_ms)]
        for read_store in reads:
            with pytest.raises(OtherFormat, match=said) as caught:
                read_store()
            assert "\n" not in str(caught.value)
        assert not told.publications
        assert dumped(client) == before
        return
    assert {p for p in range(PARTITIONS) if store.load(p) is not None} == {0, 1}
    [position.id] = {head.log_id for head in store.heads().values()}
    position.now_ms = OURS.closes_ms(STEPS - 1) + 1000
    count_markers(position, store)
    schedule.run(position.now_ms)
    tally = counted(OURS, log)
    published = [p for p in told.publications if p.span == "step"]
    assert {p.step for p in published} == {STEPS - 2, STEPS - 1}  # without the markers, neither step was complete
    for p in published:
        a = OURS.index(p.attribute)
        assert p.complete
        assert p.reports == sum(t.n for key, t in tally.items() if (key.attribute, key.step) == (a, p.step)) > 0


def test_a_data_folder_goes_on_or_is_refused(state: Files, tmp_path: Path) -> None:
    """A restarted `ldpstream serve` publishes the next step with exactly the reports of the log.

    It refuses a folder of another format, and the kept survey of another canonical text.
    """
    with closing(sqlite3.connect(tmp_path / FILE)) as db:
        db.executescript("\n".join(state["folder"]["sql"]))
        db.execute(f"PRAGMA user_version = {state['folder']['format']}")
        db.execute(f"PRAGMA application_id = {APPLICATION}")
        db.execute("PRAGMA journal_mode = WAL")
    before = (tmp_path / FILE).read_bytes()
    if state["folder"]["format"] != FORMAT:
        with pytest.raises(OtherFormat):
            DataFolder(tmp_path)
        assert (tmp_path / FILE).read_bytes() == before
        return
    with closing(DataFolder(tmp_path)) as folder:
        keeper = FolderKeeper(folder, SurveyFolder([SURVEY], lambda: OURS.closes_ms(0)))
        if not same_text(state):
            with pytest.raises(KeptUnreadable):
                keeper.check(OURS)
            return
        keeper.check(OURS)
        now_ms = OURS.closes_ms(STEPS - 1) + 1000
        engine = FolderEngine(folder, keeper.check, lambda: now_ms)
        position, _ = engine.open(OURS)
        results = engine.results(OURS)
        assert (earlier := results.history())
        store = engine.count_store(OURS)
        counter = LogCounter(OURS, store, FolderLog(folder, OURS, lambda: now_ms))
        schedule = Schedule(OURS, store, position, results, [])
        counter.count()
        made = schedule.run(now_ms)
        counter.count()  # the marker
        made += schedule.run(now_ms)
        assert results.history()[: len(earlier)] == earlier
    tally = counted(OURS, log_of(state)[:1])
    assert {p.step for p in made} == {STEPS - 1}
    for p in [p for p in made if p.span == "step"]:
        a = OURS.index(p.attribute)
        assert p.complete
        assert p.reports == sum(t.n for key, t in tally.items() if (key.attribute, key.step) == (a, p.step)) > 0


def test_the_reports_of_another_text_are_rejected_not_misread(state: Files) -> None:
    assert bool(counted(OURS, log_of(state))) == same_text(state)


def test_each_stored_object_of_another_format_is_refused(
    state: Files, node: RedisNode, client: "redis.Redis", tmp_path: Path
) -> None:
    """The test renames the objects to the present fingerprint, as if the canonical text had not changed."""
    ours, theirs = OURS.fingerprint.hex(), state["survey"]["fingerprint"]
    formats, present = state["formats"], read(PRESENT)["formats"]
    restore(client, [[kind, key.replace(theirs, ours), value] for kind, key, value in state["redis"]])
    store, results = RedisCountStore(OURS, connect(Settings(redis=node.url))), KeptResults(OURS, RedisResults(OURS, client))
    reads: dict[str, Callable[[], Any]] = {
        "checkpoint": lambda: store.tables(range(STEPS)),
        "progress": results.progress,
        "publication": results.history,
        "filters": results.filters,
    }
    before = dumped(client)
    for name, read_object in reads.items():
        if formats[name]["format"] == present[name]["format"]:
            assert read_object(), name
        else:
            with pytest.raises(OtherFormat, match=rf"has format {formats[name]['format']}, this version needs format"):
                read_object()
    assert dumped(client) == before
