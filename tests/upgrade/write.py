"""Writes what this version stores and sends: `python -m tests.upgrade.write` renews `tests/upgrade/present/`.

    formats.json    the format of every object, and its schema: names of fields and keys, columns, and layouts
    survey.json     the device survey of `survey.toml`
    log.json        the records of two partitions: offset, append time, report key, envelope
    redis.json      all keys of Redis after the log was counted and estimated
    folder.json     the data folder of one machine after the log's first partition was counted and estimated, as statements
    devices.json    the SQLite files of a device and of a wallet, as statements
    sent.json       report keys and partitions that the gateway derives

`tests/upgrade/landed/COMMIT/` has the same files of the versions that landed. They never change.
"""

import base64
import json
import re
import sqlite3
import sys
import tempfile
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import Any, cast
from unittest.mock import patch

import msgspec
import numpy as np
import redis

from ldpstream.agents import PartitionFold, Record
from ldpstream.device import Device, Wallet
from ldpstream.engines.folder.data_folder import DataFolder
from ldpstream.engines.folder.folder_log import FolderLog
from ldpstream.engines.folder.survey_keeper import FolderKeeper
from ldpstream.engines.kafka.redis_connection import connect
from ldpstream.engines.kafka.redis_results import RedisResults
from ldpstream.engines.kafka.redis_store import RedisCountStore
from ldpstream.publishing.results import KeptResults
from ldpstream.publishing.schedule import Schedule
from ldpstream.runtime.settings import Settings
from ldpstream.services.counting import LogCounter
from ldpstream.services.engine import FolderEngine
from ldpstream.surveys import Survey, load_survey, seal
from ldpstream.surveys.envelope import VERSION
from ldpstream.surveys.life.folder import SurveyFolder
from ldpstream.surveys.life.keeper import Kept
from ldpstream.surveys.report_key import batch_keys, request_hash
from tests.publishing.schedule_rig import ScheduleLog
from tests.services.rig import RedisNode

HERE = Path(__file__).parent
PRESENT = HERE / "present"
SURVEY = HERE / "survey.toml"
PARTITIONS, STEPS, REPORTS = 2, 6, 40  # the first five steps close
Files = dict[str, Any]


def written() -> Files:
    """The files of the present version, by name."""
    survey = load_survey(SURVEY)
    log = records(survey)
    with tempfile.TemporaryDirectory() as folder:
        dump = stored(survey, log)
        devices = sqlite_files(survey, Path(folder))
        data = data_folder(survey, log[0], Path(folder) / "data")
    hashed = request_hash(b"body", b"k" * 16)
    sent = [hashed.hex(), *(key.hex() for key in batch_keys(hashed, 3))]
    files = {
        "survey": msgspec.to_builtins(survey.device_survey),
        "log": [[[r.offset, r.appended_ms, r.key.hex(), r.value.hex()] for r in partition] for partition in log],
        "redis": dump, "folder": data, "devices": devices, "sent": sent,
    }  # fmt: skip
    return {"formats": formats(survey, files)} | files


def records(survey: Survey) -> list[list[Record]]:
    """The log: in each step, each partition gets an envelope of every attribute and level."""
    rng = np.random.default_rng(20_261_123)
    partitions: list[list[Record]] = [[] for _ in range(PARTITIONS)]
    for step in range(STEPS):
        for log in partitions:
            for attribute, mechanisms in enumerate(survey.mechanisms):
                for level, m in enumerate(mechanisms):
                    reports = m.simulate(rng.integers(0, m.k, REPORTS), rng)
                    raw = seal(survey, attribute, level, step, reports)
                    log.append(Record(len(log), survey.opens_ms(step) + 10 * len(log), raw, rng.bytes(16)))
    return partitions


def stored(survey: Survey, log: list[list[Record]]) -> list[Any]:
    """Counts and estimates the log. Returns all keys of Redis."""
    with RedisNode(append_fsync=None) as node, redis.Redis.from_url(node.url) as client:
        store = RedisCountStore(survey, connect(Settings(redis=node.url)))
        results = KeptResults(survey, RedisResults(survey, client))
        for partition, part in enumerate(log):
            fold = PartitionFold(survey, None, log_id="the log", writer=f"writer {partition}")
            fold.feed(part)
            change = fold.changes()
            assert change is not None
            store.commit(partition, None, change)
        position = ScheduleLog(*[[record.appended_ms for record in part] for part in log])
        Schedule(survey, store, position, results, []).run(survey.closes_ms(STEPS - 2) + 1000)
        return dumped(client)


def dumped(client: "redis.Redis") -> list[Any]:
    """All keys of Redis with their values, without leases."""
    found: list[Any] = []
    for key in cast(list[bytes], sorted(client.keys())):
        kind, value = cast(bytes, client.type(key)), cast(Any, None)
        if client.ttl(key) >= 0:
            continue
        if kind == b"hash":
            fields = cast(dict[bytes, bytes], client.hgetall(key))
            value = {field.decode(): _text(content) for field, content in sorted(fields.items())}
        elif kind == b"set":
            value = sorted(member.decode() for member in cast(set[bytes], client.smembers(key)))
        else:
            value = _text(cast(bytes, client.get(key)))
        found.append([kind.decode(), key.decode(), value])
    return found


def restore(client: "redis.Redis", dump: list[Any]) -> None:
    """Writes the keys of `dumped` to Redis."""
    for kind, key, value in dump:
        if kind == "hash":
            client.hset(key, mapping={field: base64.b64decode(content) for field, content in value.items()})
        elif kind == "set":
            client.sadd(key, *value)
        else:
            client.set(key, base64.b64decode(value))


def _text(raw: bytes) -> str:
    return base64.b64encode(raw).decode()


def sqlite_files(survey: Survey, folder: Path) -> Files:
    """The files of a device and of a wallet that have reported three steps, as format and statements."""
    levels = {"zone": "cautious"}
    with patch("time.time_ns", lambda: survey.start_ms * 1_000_000):
        device = Device(survey, folder / "device", levels=levels, consent="simulated")
        wallet = Wallet(folder / "wallet", for_ever=1000.0)
        for each in (device, Device(survey, wallet, levels=levels, consent="simulated")):
            for step in range(3):
                for attribute, value in (("mode", "bus"), ("zone", 7), ("speed", 12.5), ("set", 3)):
                    each.report(attribute, value, step)
    files = {}
    for name in ("device", "wallet"):
        with closing(sqlite3.connect(folder / name)) as connection:
            connection.text_factory = str
            [[number]] = connection.execute("PRAGMA user_version").fetchall()
            files[name] = {"format": number, "sql": list(connection.iterdump())}
    return files


def data_folder(survey: Survey, log: list[Record], path: Path) -> Files:
    """The data folder of one machine, as format and statements."""
    clock = [0]
    with closing(DataFolder(path)) as folder:
        engine = FolderEngine(folder, lambda _: None, lambda: clock[0])
        position, _ = engine.open(survey)
        cast(FolderLog, position).log_id()  # numbers the survey, in a transaction of its own
        results, kept = engine.results(survey), Kept(survey.fingerprint.hex(), SURVEY.read_text())
        FolderKeeper(folder, SurveyFolder([SURVEY], lambda: 0))._write(survey, kept)
        for record in log:
            clock[0] = record.appended_ms
            with folder.write() as db:
                cast(FolderLog, position).append(db, [record.value], record.key)
        clock[0] = survey.closes_ms(STEPS - 2) + 1000
        counter = LogCounter(survey, engine.count_store(survey), cast(FolderLog, position))
        schedule = Schedule(survey, engine.count_store(survey), position, results, [])
        for _ in range(2):  # the first run appends a marker
            counter.count()
            schedule.run(clock[0])
        with folder.write() as db:  # what is random
            db.execute("UPDATE survey SET log_id = 'the log'")
            db.execute("UPDATE checkpoint SET log_id = 'the log', writer = 'writer'")
        with folder.read() as db:
            [[number]] = db.execute("PRAGMA user_version").fetchall()
            return {"format": number, "sql": list(db.iterdump())}


def formats(survey: Survey, files: Files) -> Files:
    """The format and the schema of every object."""
    dump = {key.rpartition(":")[2]: value for _, key, value in files["redis"]}
    counts, progress, filters = dump["counts"], _json(dump["progress"]), dump["filters"].values()
    heads = [json.loads(base64.b64decode(state).partition(b"\n")[0]) for state in filters]
    names = {_shape(name.split("}")[-1]) for _, name, _ in files["redis"]}
    tables = {f"{_shape(field)} of {field} has {len(base64.b64decode(blob))} bytes" for field, blob in counts.items()
              if field.endswith(":5:0")}  # fmt: skip
    kept = [_json(raw) for raw in dump["estimates"].values()]
    zeros = seal(survey, 1, 1, 7, np.zeros(2, survey.mechanisms[1][1].report_dtype), 0)
    return {
        "canonical": _of(files["survey"]["canonical"], paths(json.loads(files["survey"]["canonical"]))),
        "envelope": {"format": VERSION, "schema": [zeros.replace(survey.fingerprint, b"").hex()]},
        "checkpoint": _of(_json(counts.get("format")) or 1, {*names, *map(_shape, counts), *tables}),
        "progress": _of(progress, progress),
        "filters": _of(heads[0], {*heads[0], *(f"{len(base64.b64decode(state)) // 8} numbers" for state in filters)}),
        "publication": _of(kept[0], {path for one in kept for path in paths(one)}),
        "data folder": _of(files["folder"]["format"], _tables(files["folder"]["sql"])),
        "device file": _of(files["devices"]["device"], _tables(files["devices"]["device"]["sql"])),
        "wallet file": _of(files["devices"]["wallet"], _tables(files["devices"]["wallet"]["sql"])),
        "report keys": {"format": 1, "schema": files["sent"]},
    }


def _of(stated: Any, schema: Iterable[str]) -> Files:
    """The format and the schema of an object. `stated` is its number, or an object or JSON text with the key `format`."""
    if isinstance(stated, str):
        stated = json.loads(stated)
    number = stated.get("format", 1) if isinstance(stated, dict) else stated or 1
    return {"format": number, "schema": sorted(schema)}


def _json(raw: str | None) -> Any:
    """The JSON of a value of `dumped`, or of a text."""
    if raw is None:
        return None
    return json.loads(raw if raw.startswith("{") else base64.b64decode(raw))


def paths(value: Any, at: str = "") -> set[str]:
    """The keys of a document, each with the keys that lead to it."""
    if isinstance(value, dict):
        return {path for key, inner in value.items() for path in {f"{at}.{key}", *paths(inner, f"{at}.{key}")}}
    return {path for inner in value for path in paths(inner, at)} if isinstance(value, list) else set()


def _shape(name: str) -> str:
    """A key or field without its numbers."""
    return re.sub(r"\b([0-9a-f]{16}|\d+)\b", "N", name)


def _tables(statements: list[str]) -> list[str]:
    return [" ".join(statement.split()) for statement in statements if statement.startswith("CREATE")]


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in written().items():
        (folder / f"{name}.json").write_text(json.dumps(content, indent=0, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else PRESENT)
