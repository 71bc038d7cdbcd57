"""The count store in Redis: one hash per Kafka partition.

ldpstream:{<survey>:<fingerprint>:<partition>}:counts
    format                              `FORMAT`; a hash without it has format 1
    next_offset                         first offset that is not yet counted
    newest_ms                           latest append time among the counted records
    rejected                            JSON: number of rejected envelopes by reason
    log_id                              id of the log to which the offset belongs
    missing                             JSON of `Missing`; empty if no record is missing
    writer                              random name of the counting run that wrote the checkpoint
    keys                                JSON: number of report keys by generation
    pane:<attribute>:<level>:<step>:<cohort>    CountTable.to_bytes()
ldpstream:{<survey>:<fingerprint>:<partition>}:keys:<generation>
    a string: the report keys of a generation, 8 bytes each; agents read and write it, `ldpstream move` writes it
ldpstream:{<survey>:<fingerprint>:<partition>}:pruned
    a step: the panes of all steps before this step have been removed; a separate key, because agents do not write it
ldpstream:<survey>:<fingerprint>:partitions
    the partitions that have a hash or will soon get a hash
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from ldpstream.engines.checkpoint import (
    ALL_STEPS,
    Checkpoint,
    PaneKey,
    checkpoint_of,
    first_open_step,
    missing_to_json,
)
from ldpstream.engines.count_store import CountStore, StoreDamaged
from ldpstream.engines.formats import check_format
from ldpstream.engines.kafka.redis_connection import Client
from ldpstream.mechanisms import CountTable
from ldpstream.surveys import Survey

FORMAT = 2  # format of the hash and its report keys; raise it if a field, a table's bytes or the meaning of one of them changes
_PANE = re.compile(rb"pane:(\d+):(\d+):(\d+):(\d+)")
_HEAD = ("next_offset", "newest_ms", "rejected", "log_id", "missing", "writer", "keys", "format")
_RECOUNT = "delete {}, and the agents count the log again"

# KEYS: the hash, then the strings of the changed generations of report keys. ARGV: expected offset, log and writer ("" if
# none), the values of `_HEAD`, a command and a value for each changed generation, then field and value of every pane. The
# script writes the head last: if an earlier command fails, the stored offset does not change.
_COMMIT = """
local stored = redis.call('HMGET', KEYS[1], 'next_offset', 'log_id', 'missing', 'writer', 'format')
local offset, log, writer = stored[1] or '', stored[2] or '', stored[4] or ''
if stored[1] and (stored[5] or '1') ~= ARGV[11] then return 0 end
if offset == ARGV[4] and log == ARGV[7] and stored[3] == ARGV[8] and writer == ARGV[9] then return 1 end
if offset ~= ARGV[1] or log ~= ARGV[2] or writer ~= ARGV[3] then return 0 end
local at = 12
for i = 2, #KEYS do
  if ARGV[at] == 'DEL' then redis.call('DEL', KEYS[i]) else redis.call(ARGV[at], KEYS[i], ARGV[at + 1]) end
  at = at + 2
end
for i = at, #ARGV, 2 do
  if ARGV[i + 1] == '' then redis.call('HDEL', KEYS[1], ARGV[i]) else redis.call('HSET', KEYS[1], ARGV[i], ARGV[i + 1]) end
end
redis.call('HSET', KEYS[1], 'next_offset', ARGV[4], 'newest_ms', ARGV[5], 'rejected', ARGV[6])
redis.call('HSET', KEYS[1], 'log_id', ARGV[7], 'missing', ARGV[8], 'writer', ARGV[9], 'keys', ARGV[10])
redis.call('HSET', KEYS[1], 'format', ARGV[11])
return 1
"""

# KEYS: the hash, then the keys of strings to read. ARGV: first and last step. Returns the fields of `_HEAD`, then the strings
# ("" if there is none), then field and value of every pane of these steps, and of every pane whose field has no step.
_READ = """
local found = redis.call('HMGET', KEYS[1], 'next_offset', 'newest_ms', 'rejected', 'log_id', 'missing', 'writer', 'keys',
  'format')
if not found[1] then return {} end
for i = 2, #KEYS do found[#found + 1] = redis.call('GET', KEYS[i]) or '' end
local first, last = tonumber(ARGV[1]), tonumber(ARGV[2])
for _, field in ipairs(redis.call('HKEYS', KEYS[1])) do
  local step = string.match(field, '^pane:%d+:%d+:(%d+):%d+$')
  if not step and string.sub(field, 1, 5) == 'pane:' or step and tonumber(step) >= first and tonumber(step) <= last then
    found[#found + 1] = field
    found[#found + 1] = redis.call('HGET', KEYS[1], field)
  end
end
return found
"""

# KEYS: the hash and the key of `pruned`. ARGV: writer, log and offset of the checkpoint seen, then the first step to keep.
_PRUNE = """
local stored = redis.call('HMGET', KEYS[1], 'next_offset', 'log_id', 'writer')
if not stored[1] or tonumber(stored[1]) < tonumber(ARGV[3]) then return 0 end
if (stored[2] or '') ~= ARGV[2] or (stored[3] or '') ~= ARGV[1] then return 0 end
local before = tonumber(ARGV[4])
if before > tonumber(redis.call('GET', KEYS[2]) or 0) then redis.call('SET', KEYS[2], ARGV[4]) end
for _, field in ipairs(redis.call('HKEYS', KEYS[1])) do
  local step = string.match(field, '^pane:%d+:%d+:(%d+):%d+$')
  if step and tonumber(step) < before then redis.call('HDEL', KEYS[1], field) end
end
return 1
"""


class RedisCountStore(CountStore):
    """A count store in Redis."""

    def __init__(self, survey: Survey, client: Client) -> None:
        self.survey, self._id = survey, f"{survey.name}:{survey.fingerprint.hex()}"
        self._redis: Any = client  # the library's types do not tell asynchronous clients from others

    # ---- CountStore

    def load(self, partition: int) -> Checkpoint | None:
        key = self._key(partition)
        head = self._redis.hmget(key, _HEAD)
        if head[0] is None:
            return None
        before = self._head(key, head)
        self._redis.sadd(self._partitions_key, partition)  # Redis may have lost the partitions key but kept the hash
        # a write between our two reads can only raise the newest time; we then read more panes than needed, never fewer
        first, generations = first_open_step(self.survey, before.newest_ms), before.n_keys.keys()
        while (found := self._read([key, *self._keys_keys(partition, generations)], range(first, ALL_STEPS.stop))) is not None:
            checkpoint, keys = found
            if checkpoint.n_keys.keys() == generations:
                loaded = replace(checkpoint, keys=dict(zip(generations, keys, strict=True)))
                for generation in (generation for generation in generations if not loaded.is_whole(generation)):
                    name = self._keys_keys(partition, [generation])[0]
                    said = f"the report keys {name} are not the {loaded.n_keys[generation]} keys that were written"
                    raise StoreDamaged(f"Redis: {said}; {_RECOUNT.format(key)}")
                return loaded
            generations = checkpoint.n_keys.keys()  # another agent has written between our two reads
        return None

    def commit(self, partition: int, expected: tuple[int, str] | None, change: Checkpoint) -> bool:
        if expected is None:
            self._redis.sadd(self._partitions_key, partition)
        arguments: list[str | int | bytes] = [*(expected or ("", "")), change.base_writer]
        arguments += [change.next_offset, change.newest_ms, json.dumps(change.rejected), change.log_id]
        arguments += [missing_to_json(change.missing), change.writer, json.dumps(change.n_keys), FORMAT]
        for generation, keys in change.keys.items():
            arguments += ["DEL" if not keys else "SET" if change.is_whole(generation) else "APPEND", keys]
        for key, table in change.panes.items():
            arguments += [f"pane:{key.attribute}:{key.level}:{key.step}:{key.cohort}", table.to_bytes() if table.n else b""]
        written = [self._key(partition), *self._keys_keys(partition, change.keys)]
        return bool(self._redis.register_script(_COMMIT)(keys=written, args=arguments))

    def check_writes(self) -> None:
        self._redis.sadd(self._partitions_key, 0)  # refused by a full, replicating or lonely server

    def heads(self) -> dict[int, Checkpoint]:
        partitions = self._partitions()
        with self._redis.pipeline(transaction=False) as pipeline:
            for partition in partitions:
                pipeline.hmget(self._key(partition), _HEAD)
            with self._redis.errors():
                found = pipeline.execute()
        return {
            partition: self._head(self._key(partition), head)
            for partition, head in zip(partitions, found)
            if head[0] is not None
        }

    def checkpoints(self, steps: range) -> dict[int, Checkpoint]:
        checkpoints: dict[int, Checkpoint] = {}
        for partition in self._partitions():
            found = self._read([self._key(partition), self._pruned_key(partition)], steps)
            if found is not None:
                checkpoint, (pruned,) = found
                with self._numbers(self._pruned_key(partition)):
                    checkpoints[partition] = replace(checkpoint, pruned_below=int(pruned or 0))
        return checkpoints

    def prune(self, before_step: int, seen: Mapping[int, Checkpoint]) -> None:
        script = self._redis.register_script(_PRUNE)
        for partition, checkpoint in seen.items():
            keys = [self._key(partition), self._pruned_key(partition)]
            script(keys=keys, args=[checkpoint.writer, checkpoint.log_id, checkpoint.next_offset, before_step])

    # ---- reading

    @property
    def _partitions_key(self) -> str:
        return f"ldpstream:{self._id}:partitions"

    def _key(self, partition: int) -> str:
        return f"ldpstream:{{{self._id}:{partition}}}:counts"

    def _pruned_key(self, partition: int) -> str:
        return f"ldpstream:{{{self._id}:{partition}}}:pruned"

    def _keys_keys(self, partition: int, generations: Iterable[int]) -> list[str]:
        return [f"ldpstream:{{{self._id}:{partition}}}:keys:{generation}" for generation in generations]

    def _partitions(self) -> list[int]:
        members: set[bytes] = self._redis.smembers(self._partitions_key)
        with self._numbers(self._partitions_key):
            return sorted(int(member) for member in members)

    def _read(self, keys: list[str], steps: range) -> tuple[Checkpoint, list[bytes]] | None:
        script = self._redis.register_script(_READ)
        found: list[bytes] = script(keys=keys, args=[steps.start, steps.stop - 1])
        if not found:
            return None
        end = len(_HEAD) + len(keys) - 1
        head, strings, panes = found[: len(_HEAD)], found[len(_HEAD) : end], found[end:]
        tables: dict[PaneKey, CountTable] = {}
        checkpoint = self._head(keys[0], head)
        for field, blob in zip(panes[::2], panes[1::2]):
            try:
                key = _pane_key(field)
                tables[key] = self.survey.mechanisms[key.attribute][key.level].table_from_bytes(blob)
            except (ValueError, IndexError):
                raise StoreDamaged(
                    f"Redis: {keys[0]}: {field.decode(errors='replace')} is not a count table of survey {self.survey.name}; "
                    f"{_RECOUNT.format(keys[0])}"
                ) from None
        return replace(checkpoint, panes=tables), strings

    @contextmanager
    def _numbers(self, key: str) -> Iterator[None]:
        """Turns the errors of reading numbers into StoreDamaged."""
        try:
            yield
        except (ValueError, TypeError, AttributeError):  # JSON may be of another type
            remedy = f"; {_RECOUNT.format(key)}" if key.endswith(":counts") else ""
            raise StoreDamaged(f"Redis: {key} has a damaged number{remedy}") from None

    def _head(self, key: str, head: Sequence[bytes | None]) -> Checkpoint:
        next_offset, newest_ms, rejected, log_id, missing, writer, keys, stored = (value or b"" for value in head)
        with self._numbers(key):
            check_format(f"Redis: {key}", int(stored or 1), FORMAT, _RECOUNT.format(key))
            return checkpoint_of(
                int(next_offset), int(newest_ms), rejected.decode(), log_id.decode(), missing.decode(), writer.decode(),
                (keys or b"{}").decode(),
            )  # fmt: skip


def _pane_key(field: bytes) -> PaneKey:
    found = _PANE.fullmatch(field)
    if found is None:
        raise ValueError(field)
    return PaneKey(*map(int, found.groups()))
