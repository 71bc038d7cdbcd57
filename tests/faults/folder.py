"""Random lists of faults for the service on one machine: the real log, counting, schedule and results in a data folder.

The process is killed at any transaction, before or after the commit, and the machine writes torn pages behind the log's end.
The disk is full, the clock jumps in both directions, devices send again what they have sent, and counted reports expire. The
service continues from an earlier copy of its data; the first copy is older than the survey.

    python -m tests.faults.folder --first 0 --lists 2000

The invariant, checked at the end of each list, with a reference that shares no code with the service:

    the counts equal the tally of all records ever written, each report key once;
    every report that was answered by 202 and was not too old is counted;
    every publication has all reports of its steps, also those that were written later, and is complete before a restore;
    after a restore, a step is incomplete if reports of it were received after the copy, and complete if none can be missing.
"""

import argparse
import random
import shutil
import sqlite3
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ldpstream.agents.fold import not_after
from ldpstream.agents.tally import Record
from ldpstream.engines.checkpoint import MAX_MS
from ldpstream.engines.count_store import StoreUnavailable
from ldpstream.engines.folder.backup import backup
from ldpstream.engines.folder.data_folder import FILE, PARTITION, DataFolder
from ldpstream.engines.folder.folder_log import FolderLog, expire
from ldpstream.engines.folder.gateway_logs import FolderLogs, _Append
from ldpstream.engines.gateway_log import Outcome
from ldpstream.publishing.estimates import catalogue
from ldpstream.publishing.schedule import Schedule
from ldpstream.services import engine
from ldpstream.services.counting import LogCounter
from ldpstream.surveys import seal
from ldpstream.surveys.report_key import batch_keys
from tests.agents.reference import Counted, judge, judge_log
from tests.small_survey import small_survey

LENGTH = 40  # operations of a list
WINDOW = 2
MEMORY = Path("/dev/shm")  # no disk needs to sync what the list itself tears

QUESTION = {"name": "a", "size": 3, "level": [{"name": "l", "mechanism": "GRR", "eps": 1.0}]}
SURVEY = small_survey(QUESTION, name="folder", step_seconds=10, window_steps=WINDOW, lateness_steps=1, skew_seconds=10)


class Killed(BaseException):
    """The process was killed."""


class Violation(AssertionError):
    """The invariant does not hold."""


class Request(NamedTuple):
    """A request: its envelopes of one step, and its idempotency key's hash, or empty."""

    envelopes: tuple[bytes, ...]
    key: bytes
    step: int

    def names(self) -> list[bytes]:
        """Returns a name for each envelope. No other envelope in the log has this name."""
        if not self.key:
            return list(self.envelopes)
        return [self.key] if len(self.envelopes) == 1 else batch_keys(self.key, len(self.envelopes))


class Copy(NamedTuple):
    """A copy of the data, and the list's state at that time."""

    file: Path
    answered: tuple[Request, ...]
    expired: dict[int, Record]
    after_ms: int  # reports from this append time on may be missing from a restored service
    end: int  # offset of the first record that a restored service appends
    until_ms: int | None = None  # reports from this append time on are not missing; None: from the record at `end` on


class Machine:
    """One machine with a data folder, whose process is started again after each kill.

    Args:
        path: an empty folder.
        seed: determines all that is random.

    Attributes:
        done: how often each operation and event occurred.
    """

    def __init__(self, path: Path, seed: int) -> None:
        self._path, self._generation = path, 0
        self._random, self._rng = random.Random(seed), np.random.default_rng(seed)
        self._now_ms = SURVEY.opens_ms(0)
        self._kill: tuple[int, bool] | None = None  # transactions until the kill, and True to kill after the commit
        self._sent: list[Request] = []
        self._answered: list[Request] = []  # by 202, and not lost by a restore
        self._lost: list[Request] = []  # by 202, before a restore of an earlier copy
        self._expired: dict[int, Record] = {}  # by offset
        self._copy = self._first = self._copy_without_the_survey()
        self._restored: Copy | None = None  # the copy from which the service continues
        self._floor_ms = 0  # the clock does not jump below the time of the last restore
        self.done: Counter[str] = Counter()
        self._open = ExitStack()
        self._start()

    def _copy_without_the_survey(self) -> Copy:
        file = self._path / "first-copy"
        with closing(DataFolder(self._path / "0", lambda: self._now_ms)) as folder:
            backup(folder.file, file)
        return Copy(file, (), {}, 0, 0)

    def close(self) -> None:
        """Closes the data folder."""
        self._open.close()

    # ---- the process

    def _start(self) -> None:
        folder = self._open.enter_context(closing(DataFolder(self._path / str(self._generation), lambda: self._now_ms)))
        self._folder, self._write = folder, folder.write
        folder.write = self._writing  # type: ignore[method-assign]  # every transaction may be the last one
        self._logs = FolderLogs(folder, lambda _: None, lambda: self._now_ms)
        self._log = FolderLog(folder, SURVEY, lambda: self._now_ms)
        self._engine = engine.FolderEngine(folder, lambda _: None, lambda: self._now_ms)
        position, _ = self._engine.open(SURVEY)
        self.store, self.results = self._engine.count_store(SURVEY), self._engine.results(SURVEY)
        self._counter = LogCounter(SURVEY, self.store, FolderLog(folder, SURVEY, lambda: self._now_ms))
        steps = self._engine.deadline_steps
        self._schedule = Schedule(SURVEY, self.store, position, self.results, [], deadline_steps=steps)

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        after = None
        if self._kill is not None:
            left, after = self._kill
            self._kill = None if left == 0 else (left - 1, after)
            after = after if left == 0 else None
        with self._write() as db:
            yield db
            if after is False:
                raise Killed
        if after:
            raise Killed

    def _restart(self) -> None:
        """Starts the process again, on a copy of the files as the crashed machine has them."""
        old, new = self._next_folder()
        for name in (FILE, f"{FILE}-wal"):
            if (old / name).exists():
                shutil.copy(old / name, new / name)
        if self._random.random() < 0.5 and (wal := new / f"{FILE}-wal").exists():
            with wal.open("ab") as file:  # a torn write
                file.write(self._rng.bytes(int(self._rng.integers(1, 9000))))
        self._start_instead_of(old)

    def _next_folder(self) -> tuple[Path, Path]:
        """Returns the present folder and a new one."""
        self._kill = None
        old = self._path / str(self._generation)
        self._generation += 1
        new = self._path / str(self._generation)
        new.mkdir()
        return old, new

    def _start_instead_of(self, old: Path) -> None:
        self.close()
        shutil.rmtree(old)
        self.done["restarts"] += 1
        self._start()

    def _alive(self, act: Callable[[], object]) -> None:
        """Calls a function. If the function kills the process, starts the process again."""
        try:
            act()
        except Killed:
            self._restart()
        except StoreUnavailable:
            self.done["refused by the disk"] += 1

    # ---- operations

    def produce(self) -> None:
        """One to three requests with one to three envelopes, of steps that devices may report now."""
        now = SURVEY.step_at(self._now_ms)
        for _ in range(self._random.randint(1, 3)):
            step = max(0, now + self._random.choice((-2, -1, 0, 0, 0, 1)))
            mechanism = SURVEY.mechanisms[0][0]
            envelopes = []
            for _ in range(self._random.randint(1, 3)):
                reports = mechanism.simulate(self._rng.integers(0, 3, self._random.randint(1, 4)), self._rng)
                envelopes.append(seal(SURVEY, 0, 0, step, reports))
            key = self._rng.bytes(16) if self._random.random() < 0.8 else b""
            self._sent.append(Request(tuple(envelopes), key, step))
            self._alive(lambda: self._append(self._sent[-1:]))

    def send_again(self) -> None:
        """Devices send again, with the same keys, some of what they have sent before."""
        keyed = [one for one in self._sent[-12:] if one.key]
        if keyed:
            self._alive(lambda: self._append(self._random.sample(keyed, min(len(keyed), 3))))

    def _append(self, sent: list[Request]) -> None:
        answers: list[tuple[Outcome, int | None]] = []
        batch = [_Append(self._log, one.envelopes, one.key, lambda *said: answers.append(said)) for one in sent]
        outcome, times = self._logs._append(batch)
        for one, appended_ms in zip(sent, times, strict=True):
            if outcome is not Outcome.APPENDED or appended_ms is None:
                continue
            # for these reports the gateway answers 202
            if not SURVEY.too_old(one.step, appended_ms) and not SURVEY.too_early(one.step, appended_ms):
                self._answered.append(one)

    def count(self) -> None:
        self._alive(self._counter.count)

    def publish(self) -> None:
        self._alive(self._publish)

    def _publish(self) -> None:
        if poor := [p.key for p in self._schedule.run(self._now_ms) if not p.complete and not self._may_lack(p.step)]:
            raise Violation(f"published incomplete: {poor}")

    def _may_lack(self, step: int) -> bool:
        """True if reports of the step, or of its window, may be lost by a restore."""
        if (copy := self._restored) is None:
            return False
        log, until_ms = self._in_log() | self._expired, copy.until_ms
        if until_ms is None:
            until_ms = not_after(log[copy.end].appended_ms) if copy.end in log else MAX_MS
        opens_ms = SURVEY.opens_ms(step - WINDOW + 1) - SURVEY.skew_ms
        return copy.after_ms < SURVEY.closes_ms(step) and opens_ms < until_ms

    def wait(self) -> None:
        self._now_ms += self._random.randint(1, 8_000)

    def jump(self) -> None:
        """The machine's clock jumps, mostly back."""
        self._now_ms = max(self._now_ms + self._random.choice((-25_000, -8_000, -300, 15_000)), self._floor_ms)

    def kill(self) -> None:
        """The process is killed at one of its next transactions."""
        self._kill = (self._random.randint(0, 3), self._random.random() < 0.5)

    def fill(self) -> None:
        """The disk is full from now on."""
        pages = self._folder._writer.execute("PRAGMA page_count").fetchone()[0]
        self._folder._writer.execute(f"PRAGMA max_page_count={pages + self._random.randint(0, 1)}")

    def make_room(self) -> None:
        self._folder._writer.execute("PRAGMA max_page_count=1000000")

    def expire(self) -> None:
        """Counted reports expire."""
        before = self._in_log()
        self._alive(lambda: expire(self._folder, self._now_ms - self._random.randint(0, 20_000), 1000))
        left = set(self._log.read(0, 10**6).offsets)
        self._expired |= {offset: one for offset, one in before.items() if offset not in left}

    def copy(self) -> None:
        """The operator copies the data while the process runs."""
        file = self._path / f"copy-{self._generation}-{len(self._sent)}-{self._random.random()}"
        backup(self._folder.file, file)
        after_ms = self._log.newest_ms() if self._restored is None else min(self._log.newest_ms(), self._restored.after_ms)
        self._copy = Copy(file, tuple(self._answered), dict(self._expired), after_ms, self._log.ends()[PARTITION])

    def restore(self) -> None:
        """The service continues from the last copy. The clock is then not behind the time of a lost record."""
        copy = self._copy
        self._floor_ms = self._now_ms = max(self._now_ms, self._log.newest_ms())
        self._lost += set(self._answered) - set(copy.answered)
        self._answered, self._expired, self._restored = list(copy.answered), dict(copy.expired), copy
        if copy is self._first:
            self._restored = copy._replace(until_ms=self._now_ms)
        old, new = self._next_folder()
        shutil.copy(copy.file, new / FILE)
        self._start_instead_of(old)
        self.done["restored"] += 1

    # ---- the end

    def finish(self) -> None:
        """Lets everything end, then checks the invariant."""
        self.make_room()
        self._restart()
        last = SURVEY.step_at(max(self._now_ms, self._log_time())) + 4
        while self._now_ms < SURVEY.closes_ms(last):
            self._now_ms += 5_000
            for _ in range(2):  # the first run may append a marker
                self._publish()
                self._counter.count()
        self._publish()
        self._check()

    def _in_log(self) -> dict[int, Record]:
        return {record.offset: record for record in map(Record, *self._log.read(0, 10**6))}

    def _log_time(self) -> int:
        return max(self._log.read(0, 10**6).appended_ms, default=0)

    def _check(self) -> None:
        log = self._in_log() | self._expired
        records = [log[offset] for offset in sorted(log)]
        verdicts = judge_log(records, lambda value, at_ms: judge(SURVEY, value, at_ms))
        steps: dict[int, Counter[int]] = {}
        for verdict in verdicts:
            if isinstance(verdict, Counted):
                steps.setdefault(verdict.pane[2], Counter()).update({i: n for i, n in enumerate(verdict.counts) if n})
        for key, table in self.store.tables(range(10**6)).items():
            if Counter({i: int(n) for i, n in enumerate(table.counts) if n}) != steps.get(key.step, Counter()):
                raise Violation(f"counts of {key}: {table.counts}, in the log {steps.get(key.step)}")
        counted = {record.key or record.value for record, verdict in zip(records, verdicts, strict=True) if counts(verdict)}
        if lost := [one.step for one in self._answered if not counted.issuperset(one.names())]:
            raise Violation(f"answered by 202 and not counted: {len(lost)} requests of the steps {lost}")
        lacking = {one.step for one in self._lost if not counted.issuperset(one.names())}
        self._check_published({step: found.total() for step, found in steps.items()}, lacking)
        self.done["steps that lack reports"] += len(lacking)
        self.done["reports counted"] += sum(found.total() for found in steps.values())
        self.done["answered by 202"] += len(self._answered)
        self.done["duplicates"] += sum(verdict == "duplicate" for verdict in verdicts)

    def _check_published(self, reports: dict[int, int], lacking: set[int]) -> None:
        progress, history = self.results.progress(), self.results.history()
        if progress is None or not all(map(self._may_lack, progress.incomplete)):
            raise Violation(f"not published complete in the end: {progress}")
        if first := [step for step in reports if step < progress.first_step]:
            raise Violation(f"reports of the steps {first}, before the first published step {progress.first_step}")
        shown = {(p.span, p.step) for p in history}
        if missing := {(s, t) for s in ("step", "window") for t in range(progress.first_step, progress.next_step)} - shown:
            raise Violation(f"never published: {sorted(missing)}")
        for p in history:
            of = range(max(progress.first_step, p.step - WINDOW + 1), p.step + 1) if p.span == "window" else (p.step,)
            if p.complete and (false := lacking.intersection(of)):
                raise Violation(f"published {p.key} complete, but reports of the steps {false} were lost")
            if (not p.complete and not self._may_lack(p.step)) or p.reports != (wanted := sum(reports.get(t, 0) for t in of)):
                raise Violation(f"published {p.key}: complete {p.complete}, {p.reports} reports; in the log {wanted}")
        self.done["publications"] += len(history)


def counts(verdict: object) -> bool:
    """True if a record counts, or is the repetition of one that does."""
    return isinstance(verdict, Counted) or verdict == "duplicate"


OPERATIONS = {
    "produce": 10, "send_again": 4, "count": 8, "publish": 8, "wait": 8, "jump": 2, "kill": 4, "fill": 1, "make_room": 2,
    "expire": 1, "copy": 2, "restore": 0.5,
}  # fmt: skip


@contextmanager
def only_inversion() -> Iterator[None]:
    """Publishes only matrix inversion: the lists compare counts, and other estimates take most of the time."""
    rows = catalogue.ESTIMATORS
    catalogue.ESTIMATORS = tuple(row for row in rows if row.name == catalogue.INVERSION)
    try:
        yield
    finally:
        catalogue.ESTIMATORS = rows


def replay(seed: int) -> Counter[str]:
    """Runs the list of a seed. Raises `Violation` if the invariant does not hold."""
    drawn = random.Random(seed)
    folder = tempfile.TemporaryDirectory(prefix="ldpstream-folder-", dir=MEMORY if MEMORY.exists() else None)
    with folder as path, only_inversion(), closing(Machine(Path(path), seed)) as machine:
        for name in drawn.choices(list(OPERATIONS), list(OPERATIONS.values()), k=LENGTH):
            machine.done[name] += 1
            getattr(machine, name)()
        machine.finish()
        return machine.done


def fails(seed: int) -> str | None:
    """Runs the list of a seed. Returns what does not hold, or None."""
    try:
        replay(seed)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--lists", type=int, default=1000)
    given = parser.parse_args()
    total: Counter[str] = Counter()
    for seed in range(given.first, given.first + given.lists):
        try:
            total.update(replay(seed))
        except Exception as error:
            print(f"list {seed}: {type(error).__name__}: {error}")
    print(", ".join(f"{name}: {n}" for name, n in sorted(total.items())))


if __name__ == "__main__":
    main()
