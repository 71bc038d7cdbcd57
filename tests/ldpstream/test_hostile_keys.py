"""Counts once under a hostile client: random lists of appends, repeats and restarts of a log with little room for keys."""

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from ldpstream.agents import remembered_keys
from ldpstream.engines.folder.data_folder import DataFolder
from ldpstream.engines.folder.folder_log import FolderLog, NoRoom
from ldpstream.engines.folder.folder_store import FolderCountStore
from ldpstream.services.counting import LogCounter
from ldpstream.surveys import report_key
from ldpstream.surveys.report_key import KeyRoom
from tests.agents.samples import during, make_survey, sound

SURVEY = make_survey()
ROOM = 30


def replay(seed: int, path: Path) -> dict[str, int]:
    """Runs a random list; asserts that the counts are those of the distinct keys that were appended.

    Returns:
        How often each thing happened.
    """
    rng = np.random.default_rng(seed)
    step, appended = 3, dict[bytes, int]()  # key of a request -> number of its reports
    sent = list[tuple[list[bytes], bytes]]()  # requests of this step, which their senders may repeat
    happened = dict.fromkeys(("full", "repeated", "restarts", "steps"), 0)

    def now_ms() -> int:
        return during(SURVEY, step)

    with closing(DataFolder(path)) as folder:
        log = FolderLog(folder, SURVEY, now_ms)
        log.log_id()
        counter = LogCounter(SURVEY, FolderCountStore(folder, SURVEY), log)
        for _ in range(60):
            what = rng.choice(["hostile", "honest", "repeat", "repeat", "count", "restart", "fails", "step"], p=[
                0.3, 0.2, 0.1, 0.1, 0.15, 0.05, 0.05, 0.05
            ])  # fmt: skip
            if what == "step":
                step, sent = step + 1, []
                happened["steps"] += 1
            elif what == "count":
                counter.count()
            elif what == "restart":
                log = FolderLog(folder, SURVEY, now_ms)
                counter = LogCounter(SURVEY, FolderCountStore(folder, SURVEY), log)
                happened["restarts"] += 1
            else:
                if what == "repeat" and sent:
                    envelopes, key = sent[int(rng.integers(len(sent)))]
                    happened["repeated"] += 1
                else:
                    n = int(rng.integers(2, 9)) if what == "hostile" else 1
                    envelopes, key = [sound(SURVEY, rng, step, i % 3) for i in range(n)], rng.bytes(16)
                try:
                    with folder.write() as db:
                        log.append(db, envelopes, key)
                        if what == "fails":
                            raise ZeroDivisionError
                    appended[key] = len(envelopes)
                    sent.append((envelopes, key))
                except NoRoom:
                    happened["full"] += 1
                except ZeroDivisionError:
                    log.count_keys_again()
        counter.count()
        found = FolderCountStore(folder, SURVEY).checkpoints(range(step + 2))[0]
    assert sum(table.n for table in found.panes.values()) == sum(appended.values())
    return happened


@pytest.fixture
def little_room(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (report_key, remembered_keys):
        monkeypatch.setattr(module, "MAX_KEYS", ROOM)


@pytest.mark.usefixtures("little_room")
def test_every_acknowledged_report_counts_once(tmp_path: Path) -> None:
    happened = [replay(seed, tmp_path / str(seed)) for seed in range(12)]
    assert min(sum(one[what] for one in happened) for what in happened[0]) > 0


def has_room_for_all(patch: pytest.MonkeyPatch) -> None:
    """The log acknowledges keys that nobody remembers."""
    patch.setattr(KeyRoom, "take", lambda self, step, count: True)


def forgets_at_a_restart(patch: pytest.MonkeyPatch) -> None:
    """A restarted process starts with empty room."""
    patch.setattr(FolderLog, "_keys_of", lambda self, db, step: 0)


def counts_a_request_as_one_key(patch: pytest.MonkeyPatch) -> None:
    """The keys of a batch are charged as one."""
    honest = KeyRoom.take
    patch.setattr(KeyRoom, "take", lambda self, step, count: honest(self, step, 1))


def forgets_uncounted_records(patch: pytest.MonkeyPatch) -> None:
    """A restarted process knows the remembered keys, not those of records that wait to be counted."""

    def keys_of(self: FolderLog, db: object, step: int) -> int:
        with self._part.read() as reader:
            (waiting,) = reader.execute("SELECT count(*) FROM record").fetchone()
        return max(0, honest(self, db, step) - int(waiting))  # type: ignore[arg-type]  # the connection of the caller

    honest = FolderLog._keys_of
    patch.setattr(FolderLog, "_keys_of", keys_of)


@pytest.mark.usefixtures("little_room")
@pytest.mark.parametrize(
    "mutant", [has_room_for_all, forgets_at_a_restart, counts_a_request_as_one_key, forgets_uncounted_records],
    ids=lambda mutant: mutant.__name__,
)  # fmt: skip
def test_the_lists_find_a_log_that_promises_too_much(
    mutant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    mutant(monkeypatch)
    with pytest.raises(AssertionError):
        for seed in range(40):
            replay(seed, tmp_path / str(seed))
