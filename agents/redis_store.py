"""The count store on Redis: one hash per Kafka partition, written by one script.

    ldpstream:{<survey>:<fingerprint>:<partition>}:counts
        next_offset                         first offset that is not counted
        newest_ms                           latest append time among the records counted
        rejected                            JSON, refused envelopes by reason
        pane:<attribute>:<level>:<step>     CountTable.to_bytes()
    ldpstream:<survey>:<fingerprint>:partitions
        the partitions that have, or are about to have, a hash

The braces are a Redis Cluster's hash tag; a partition needs no more than one key, so one script is one atomic step there too.
The fingerprint keeps the counts of a changed survey apart.
"""

import json
from collections.abc import Callable
from typing import Any, cast

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from agents.store import Checkpoint, CountStore, StoreUnavailable, first_open_step, sum_rejected, sum_tables
from agents.tally import PaneKey
from mechanisms import CountTable
from surveys import Reason, Survey

TIMEOUT_S = 3.0
_PANE = b"pane:"
_LATEST_STEP = 2**53 - 1  # Lua's numbers are doubles

# KEYS: the hash. ARGV: expected offset ("" for none), next offset, newest time, rejected, then field and blob of every pane.
_COMMIT = """
local stored = redis.call('HGET', KEYS[1], 'next_offset') or ''
if stored == ARGV[2] then return 1 end
if stored ~= ARGV[1] then return 0 end
redis.call('HSET', KEYS[1], 'next_offset', ARGV[2], 'newest_ms', ARGV[3], 'rejected', ARGV[4])
for i = 5, #ARGV, 2 do redis.call('HSET', KEYS[1], ARGV[i], ARGV[i + 1]) end
return 1
"""

# KEYS: the hash. ARGV: first and last step. Gives offset, newest time, rejected, then field and blob of every such pane.
_READ = """
local found = redis.call('HMGET', KEYS[1], 'next_offset', 'newest_ms', 'rejected')
if not found[1] then return {} end
local first, last = tonumber(ARGV[1]), tonumber(ARGV[2])
for _, field in ipairs(redis.call('HKEYS', KEYS[1])) do
  local step = string.match(field, '^pane:%d+:%d+:(%d+)$')
  if step and tonumber(step) >= first and tonumber(step) <= last then
    found[#found + 1] = field
    found[#found + 1] = redis.call('HGET', KEYS[1], field)
  end
end
return found
"""


class RedisCountStore(CountStore):
    """A count store in a Redis database.

    Args:
        survey: the survey that is being counted.
        url: ``redis://[user:password@]host:port/db``; never shown with its password.
        timeout_s: how long to wait for a connection, and for each piece of an answer, in seconds.

    Raises:
        ValueError: if the URL cannot be read.
    """

    def __init__(self, survey: Survey, url: str, timeout_s: float = TIMEOUT_S) -> None:
        self.survey = survey
        try:
            self._redis = redis.Redis.from_url(
                url, socket_timeout=timeout_s, socket_connect_timeout=timeout_s, retry=Retry(NoBackoff(), 0)
            )
        except ValueError:
            raise ValueError("the URL of Redis must read redis://[user:password@]host:port/db") from None
        given = self._redis.connection_pool.connection_kwargs
        self._secret = str(given.get("password") or "")
        self._where = str(given.get("path") or f"{given.get('host', 'localhost')}:{given.get('port', 6379)}")
        self._commit_script = self._redis.register_script(_COMMIT)
        self._read_script = self._redis.register_script(_READ)
        self._id = f"{survey.name}:{survey.fingerprint.hex()}"

    def close(self) -> None:
        """Close the connections."""
        self._redis.close()

    # ---- CountStore

    def load(self, partition: int) -> Checkpoint | None:
        newest = self._ask(self._redis.hget, self._key(partition), "newest_ms")
        if newest is None:
            return None
        self._ask(self._redis.sadd, self._partitions_key, partition)  # in case that key alone was lost
        # a write in between can only have raised the newest time, which leaves too many panes and not too few
        return self._read(partition, first_open_step(self.survey, int(newest)), _LATEST_STEP)

    def commit(self, partition: int, expected: int | None, change: Checkpoint) -> bool:
        if expected is None:
            self._ask(self._redis.sadd, self._partitions_key, partition)
        arguments: list[str | int | bytes] = ["" if expected is None else expected, change.next_offset, change.newest_ms]
        arguments.append(json.dumps(change.rejected))
        for key, table in change.panes.items():
            arguments += [f"pane:{key.attribute}:{key.level}:{key.step}", table.to_bytes()]
        return bool(self._ask(self._commit_script, keys=[self._key(partition)], args=arguments))

    def positions(self) -> dict[int, int]:
        partitions = self._partitions()
        with self._redis.pipeline(transaction=False) as pipeline:
            for partition in partitions:
                pipeline.hget(self._key(partition), "next_offset")
            offsets = self._ask(pipeline.execute)
        return {partition: int(offset) for partition, offset in zip(partitions, offsets) if offset is not None}

    def tables(self, steps: range) -> dict[PaneKey, CountTable]:
        if not steps:
            return {}
        return sum_tables(checkpoint.panes for checkpoint in self._read_all(steps[0], steps[-1]).values())

    def rejected(self) -> dict[Reason, int]:
        return sum_rejected(checkpoint.rejected for checkpoint in self._read_all(1, 0).values())

    def snapshot(self) -> dict[int, Checkpoint]:
        return self._read_all(0, _LATEST_STEP)

    def prune(self, before_step: int) -> None:
        for partition in self._partitions():
            fields = cast(list[bytes], self._ask(self._redis.hkeys, self._key(partition)))
            old = [field for field in fields if field.startswith(_PANE) and _pane_key(field).step < before_step]
            if old:
                self._ask(self._redis.hdel, self._key(partition), *old)

    # ---- reading

    @property
    def _partitions_key(self) -> str:
        return f"ldpstream:{self._id}:partitions"

    def _key(self, partition: int) -> str:
        return f"ldpstream:{{{self._id}:{partition}}}:counts"

    def _partitions(self) -> list[int]:
        members = cast(set[bytes], self._ask(self._redis.smembers, self._partitions_key))
        return sorted(int(member) for member in members)

    def _read_all(self, first_step: int, last_step: int) -> dict[int, Checkpoint]:
        found = {partition: self._read(partition, first_step, last_step) for partition in self._partitions()}
        return {partition: checkpoint for partition, checkpoint in found.items() if checkpoint is not None}

    def _read(self, partition: int, first_step: int, last_step: int) -> Checkpoint | None:
        found: list[bytes] = self._ask(self._read_script, keys=[self._key(partition)], args=[first_step, last_step])
        if not found:
            return None
        next_offset, newest_ms, rejected, *panes = found
        tables: dict[PaneKey, CountTable] = {}
        for field, blob in zip(panes[::2], panes[1::2]):
            key = _pane_key(field)
            tables[key] = self.survey.mechanisms[key.attribute][key.level].table_from_bytes(blob)
        return Checkpoint(int(next_offset), int(newest_ms), tables, json.loads(rejected))

    def _ask(self, command: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        try:
            return command(*arguments, **named)
        except (redis.RedisError, OSError) as error:
            said = str(error).partition("\n")[0]
            if self._secret:
                said = said.replace(self._secret, "***")
            raise StoreUnavailable(f"Redis at {self._where}: {said or type(error).__name__}") from None


def _pane_key(field: bytes) -> PaneKey:
    attribute, level, step = field.removeprefix(_PANE).split(b":")
    return PaneKey(int(attribute), int(level), int(step))
