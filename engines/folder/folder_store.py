"""The count store in a data folder."""

import json
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from sqlite3 import Connection

from ldpstream.engines.checkpoint import (
    ALL_STEPS,
    Checkpoint,
    PaneKey,
    checkpoint_of,
    first_open_step,
    missing_to_json,
)
from ldpstream.engines.count_store import CountStore, StoreDamaged
from ldpstream.engines.folder.data_folder import DataFolder, SurveyPart
from ldpstream.mechanisms import CountTable
from ldpstream.surveys import Survey

_HEAD = "next_offset, newest_ms, rejected, log_id, missing, writer, keys, pruned_below"


class FolderCountStore(CountStore):
    def __init__(self, folder: DataFolder, survey: Survey) -> None:
        self.survey, self._part = survey, SurveyPart(folder, survey)

    # ---- CountStore

    def load(self, partition: int) -> Checkpoint | None:
        with self._part.read() as db:
            if (head := self._heads(db).get(partition)) is None:
                return None
            panes = self._panes(db, range(first_open_step(self.survey, head.newest_ms), ALL_STEPS.stop))
            rows = db.execute(
                "SELECT generation, keys FROM report_key WHERE survey = ? AND part = ? ORDER BY id", (self._part.id, partition)
            )
            keys = defaultdict[int, bytes](bytes)
            for generation, some in rows:
                keys[generation] += some
        loaded = replace(head, panes=panes[partition], keys=dict(keys), pruned_below=0)
        if not all(map(loaded.is_whole, loaded.n_keys)):
            raise StoreDamaged(f"{self._part.file}: report keys of survey {self.survey.name} are missing")
        return loaded

    def commit(self, partition: int, expected: tuple[int, str] | None, change: Checkpoint) -> bool:
        with self._part.write() as db:
            stored = self._heads(db).get(partition)
            if stored is not None and change.same_change(stored):
                return True
            if not change.starts_from(stored, expected):
                return False
            values = (
                self._part.id, partition, change.next_offset, change.newest_ms, json.dumps(change.rejected), change.log_id,
                missing_to_json(change.missing), change.writer, json.dumps(change.n_keys),
                0 if stored is None else stored.pruned_below,
            )  # fmt: skip
            db.execute(f"REPLACE INTO checkpoint (survey, part, {_HEAD}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", values)
            self._write_panes(db, partition, change.panes)
            self._write_keys(db, partition, change)
        return True

    def heads(self) -> dict[int, Checkpoint]:
        with self._part.read() as db:
            return {partition: replace(head, pruned_below=0) for partition, head in self._heads(db).items()}

    def checkpoints(self, steps: range) -> dict[int, Checkpoint]:
        with self._part.read() as db:
            panes = self._panes(db, steps)
            return {partition: replace(head, panes=panes[partition]) for partition, head in self._heads(db).items()}

    def prune(self, before_step: int, seen: Mapping[int, Checkpoint]) -> None:
        with self._part.write() as db:
            for partition, head in self._heads(db).items():
                if partition in seen and head.follows(seen[partition]):
                    where = (self._part.id, partition, before_step)
                    db.execute("DELETE FROM pane WHERE survey = ? AND part = ? AND step < ?", where)
                    db.execute(
                        "UPDATE checkpoint SET pruned_below = max(pruned_below, ?) WHERE survey = ? AND part = ?",
                        (before_step, self._part.id, partition),
                    )

    # ---- rows

    def _write_panes(self, db: Connection, partition: int, panes: Mapping[PaneKey, CountTable]) -> None:
        for key, table in panes.items():
            where = (self._part.id, partition, key.step, key.attribute, key.level, key.cohort)
            if table.n:
                db.execute("REPLACE INTO pane VALUES (?, ?, ?, ?, ?, ?, ?)", (*where, table.to_bytes()))
            else:
                columns = "(survey, part, step, attribute, level, cohort)"
                db.execute(f"DELETE FROM pane WHERE {columns} = (?, ?, ?, ?, ?, ?)", where)

    def _write_keys(self, db: Connection, partition: int, change: Checkpoint) -> None:
        for generation, keys in change.keys.items():
            where = (self._part.id, partition, generation)
            if not keys or change.is_whole(generation):
                db.execute("DELETE FROM report_key WHERE survey = ? AND part = ? AND generation = ?", where)
            if keys:
                db.execute("INSERT INTO report_key (survey, part, generation, keys) VALUES (?, ?, ?, ?)", (*where, keys))

    def _heads(self, db: Connection) -> dict[int, Checkpoint]:
        rows = db.execute(f"SELECT part, {_HEAD} FROM checkpoint WHERE survey = ?", (self._part.id,)).fetchall()
        return {row[0]: checkpoint_of(*row[1:]) for row in rows}

    def _panes(self, db: Connection, steps: range) -> defaultdict[int, dict[PaneKey, CountTable]]:
        found = defaultdict[int, dict[PaneKey, CountTable]](dict)
        rows = db.execute(
            "SELECT part, attribute, level, step, cohort, counts FROM pane WHERE survey = ? AND step >= ? AND step < ?",
            (self._part.id, steps.start, steps.stop),
        )
        for partition, *where, counts in rows:
            key = PaneKey(*where)
            try:
                found[partition][key] = self.survey.mechanisms[key.attribute][key.level].table_from_bytes(counts)
            except (ValueError, IndexError):
                raise StoreDamaged(f"{self._part.file}: {key} is not a count table of survey {self.survey.name}") from None
        return found
