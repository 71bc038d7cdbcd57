"""An agent that profiles itself: records, processor seconds by phase, and the duration of each commit, as JSON.

python -m lab.bench.profiled_agent SURVEY FILE
"""

import json
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable
from functools import partial, wraps
from pathlib import Path
from typing import Any

import ldpstream.agents.app
import ldpstream.agents.remembered_keys
from ldpstream.agents.consumer.chunks import ChunkThread
from ldpstream.agents.counting import Counting
from ldpstream.agents.fold import PartitionFold
from ldpstream.agents.tally import tally
from ldpstream.engines.kafka.redis_store import RedisCountStore
from ldpstream.mechanisms import Mechanism
from ldpstream.runtime.settings import load_settings
from ldpstream.surveys.life.watch import SurveyWatch

COMMIT_INTERVAL_S = 0.1  # shorter than in the service, to get enough commits


class Account:
    def __init__(self) -> None:
        self.phases: defaultdict[str, float] = defaultdict(float)
        self.commits_s: list[float] = []
        self.records = 0
        self._lock = threading.Lock()
        self._began: dict[str, float] = {}

    def timed(self, phase: str, function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def call(*arguments: Any, **named: Any) -> Any:
            began = time.thread_time()
            try:
                return function(*arguments, **named)
            finally:
                self._add(phase, time.thread_time() - began)

        return call

    def so_far(self, phase: str) -> None:
        now = time.thread_time()
        self.phases[phase] = now - self._began.setdefault(phase, now)

    def feeding(self, feed: Callable[..., Any]) -> Callable[..., Any]:
        timed = self.timed("feed", feed)

        def call(fold: PartitionFold, records: Any) -> Any:
            self.so_far("loop")
            self._began.setdefault("process", time.process_time())
            result = timed(fold, records)
            self.records += result.records
            self.so_far("loop")
            return result

        return call

    def committing(self, commit: Callable[..., bool]) -> Callable[..., bool]:
        timed = self.timed("commit", commit)

        def call(*arguments: Any) -> bool:
            began = time.perf_counter()
            written: bool = timed(*arguments)
            self.commits_s.append(time.perf_counter() - began)
            return written

        return call

    def fetching(self, fetch: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def call(*arguments: Any, **named: Any) -> Any:
            chunks = await fetch(*arguments, **named)
            if chunks or "fetch" in self._began:
                self.so_far("fetch")
            return chunks

        return call

    def as_json(self) -> dict[str, Any]:
        spent = self.phases
        whole = time.process_time() - self._began.get("process", time.process_time())
        phases = {
            "fetch": spent["fetch"],
            "decode": spent["tally"] - spent["tabulate"],
            "tabulate": spent["tabulate"],
            "fold": spent["feed"] - spent["tally"],
            "loop": spent["loop"] - spent["feed"],
            "commit": spent["commit"],
        }
        phases["rest"] = max(0.0, whole - sum(phases.values()))
        return {"records": self.records, "cpu_s": phases, "commits_s": self.commits_s}

    def _add(self, phase: str, seconds: float) -> None:
        with self._lock:
            self.phases[phase] += seconds


def main() -> None:
    watch, file, account = SurveyWatch([Path(sys.argv[1])]), Path(sys.argv[2]), Account()
    wrapped: tuple[tuple[Any, str, Callable[..., Any]], ...] = (
        (ChunkThread, "_fetch_records", account.fetching(ChunkThread._fetch_records)),
        (PartitionFold, "feed", account.feeding(PartitionFold.feed)),
        (ldpstream.agents.remembered_keys, "tally", account.timed("tally", tally)),
        (Mechanism, "tabulate", account.timed("tabulate", Mechanism.tabulate)),
        (ldpstream.agents.app, "Counting", partial(Counting, commit_interval_s=COMMIT_INTERVAL_S)),
        (RedisCountStore, "commit", account.committing(RedisCountStore.commit)),
    )
    for owner, name, function in wrapped:
        setattr(owner, name, function)
    sys.argv = sys.argv[:1]  # otherwise Faust would parse our arguments
    try:
        ldpstream.agents.app.run(watch, load_settings())
    finally:
        file.write_text(json.dumps(account.as_json()))


if __name__ == "__main__":
    main()
