"""Stores for publications and the schedule's progress: in memory, and in Redis."""

import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import cast

import msgspec

from estimators.publishing.publication import Publication
from estimators.publishing.schedule import KEPT_STEPS, Filters, Progress
from runtime.settings import Settings
from stores.count_store import StoreUnavailable
from stores.redis_connection import ERRORS, Client, Command, check_rights
from surveys import Survey

LEASE_MS = 5_000  # the leader renews the lease before every attribute of a step

_publication = msgspec.json.Decoder(Publication)
_progress = msgspec.json.Decoder(Progress)

# KEYS: progress, estimates, filters. ARGV: progress before ("" for none), progress after, number of old fields, old fields,
# number of filters, attribute and state of each filter, then field and value of each publication.
_SAVE = """
if (redis.call('GET', KEYS[1]) or '') ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[2])
local old = tonumber(ARGV[3])
for i = 4, 3 + old do redis.call('HDEL', KEYS[2], ARGV[i]) end
local first = 5 + old + 2 * tonumber(ARGV[4 + old])
for i = 5 + old, first - 1, 2 do redis.call('HSET', KEYS[3], ARGV[i], ARGV[i + 1]) end
for i = first, #ARGV, 2 do redis.call('HSET', KEYS[2], ARGV[i], ARGV[i + 1]) end
return 1
"""


# KEYS: lease. ARGV: name of the estimator, duration in ms.
_LEAD = """
local leader = redis.call('GET', KEYS[1])
if leader and leader ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return 1
"""

# KEYS: lease. ARGV: name of the estimator.
_RESIGN = "if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('DEL', KEYS[1]) end"


class MemoryResults:
    """Results in the memory of this process, for the embedded service and for tests."""

    def __init__(self) -> None:
        self._publications: dict[str, Publication] = {}
        self._progress: Progress | None = None
        self._filters: dict[str, bytes] = {}

    def progress(self) -> Progress | None:
        return self._progress

    def filters(self) -> dict[str, bytes]:
        return dict(self._filters)

    def save(
        self, publications: list[Publication], before: Progress | None, progress: Progress, filters: Filters | None = None
    ) -> bool:
        if self._progress != before:
            return False
        self._filters.update(filters or {})
        self._publications.update((p.key, p) for p in publications)
        self._progress = progress
        return True

    def lead(self, for_ms: int | None = None) -> bool:
        return True

    def get(self, keys: Sequence[str]) -> list[Publication | None]:
        return [self._publications.get(key) for key in keys]

    def history(self) -> list[Publication]:
        """Returns all publications, oldest step first."""
        return _in_order(list(self._publications.values()))


class RedisResults:
    """Results in Redis, four keys per survey. The keys contain the fingerprint, so surveys never mix:

        ldpstream:{name:fingerprint}:progress      JSON of `Progress`
        ldpstream:{name:fingerprint}:estimates     hash: `Publication.key` -> JSON, of the last 1000 steps
        ldpstream:{name:fingerprint}:filters       hash: attribute -> state of the filter (`LocalLevel.to_bytes`)
        ldpstream:{name:fingerprint}:leader        name of the leading estimator; expires after 5 s (the lease)

    One script writes `progress`, `estimates` and `filters`. All four keys have the same hash tag, so the script also works on
    a Redis Cluster.

    Raises (all methods):
        StoreUnavailable: if Redis does not answer.
    """

    def __init__(self, survey: Survey, client: Client) -> None:
        prefix = f"ldpstream:{{{survey.name}:{survey.fingerprint.hex()}}}"
        self._client, self._progress_key, self._estimates_key = client, f"{prefix}:progress", f"{prefix}:estimates"
        self._filters_key = f"{prefix}:filters"
        self._save = client.register_script(_SAVE)
        self._seen: tuple[Progress | None, bytes] = (None, b"")  # the progress last read, and its bytes in Redis
        self._leader_key, self._name = f"{prefix}:leader", secrets.token_hex(8)
        self._lead, self._resign = client.register_script(_LEAD), client.register_script(_RESIGN)

    def check(self, settings: Settings) -> None:
        """Checks that Redis allows our commands. Writes nothing.

        Raises:
            StoreRefused: if Redis refuses a command or our login; the error names the reason.
        """
        progress, estimates, filters = self._progress_key, self._estimates_key, self._filters_key
        saved: list[Command] = [("EVALSHA", "", 3, progress, estimates, filters), ("GET", progress), ("SET", progress, 0)]
        saved += [("HGETALL", filters), ("HSET", filters, 0, 0)]
        kept: list[Command] = [("HMGET", estimates, 0), ("HVALS", estimates), ("HSET", estimates, 0, 0), ("HDEL", estimates, 0)]
        leader = self._leader_key
        led: list[Command] = [("EVALSHA", "", 1, leader), ("GET", leader), ("SET", leader, 0, "PX", 1), ("DEL", leader)]
        check_rights(self._client, settings, [*saved, *kept, *led])

    def progress(self) -> Progress | None:
        with _reachable():
            raw = cast(bytes | None, self._client.get(self._progress_key))
        self._seen = (None, b"") if raw is None else (_progress.decode(raw), raw)
        return self._seen[0]

    def filters(self) -> dict[str, bytes]:
        with _reachable():
            raw = cast(dict[bytes, bytes], self._client.hgetall(self._filters_key))
        return {name.decode(): state for name, state in raw.items()}

    def save(
        self, publications: list[Publication], before: Progress | None, progress: Progress, filters: Filters | None = None
    ) -> bool:
        """See `estimators.publishing.schedule.Results`.

        Redis compares bytes, and another software version may encode the same progress differently. For `before` we therefore
        send the bytes that we read from Redis.
        """
        old = [msgspec.structs.replace(p, step=p.step - KEPT_STEPS).key for p in publications]
        written = b"" if before is None else msgspec.json.encode(before)
        arguments: list[bytes | str | int] = [self._seen[1] if before == self._seen[0] else written]
        arguments += [msgspec.json.encode(progress), len(old), *old, len(filters or {})]
        for attribute, state in (filters or {}).items():
            arguments += [attribute, state]
        for p in publications:
            arguments += [p.key, msgspec.json.encode(p)]
        with _reachable():
            return bool(self._save(keys=[self._progress_key, self._estimates_key, self._filters_key], args=arguments))

    def lead(self, for_ms: int | None = None) -> bool:
        with _reachable():
            return bool(self._lead(keys=[self._leader_key], args=[self._name, for_ms or LEASE_MS]))

    def resign(self) -> None:
        """Releases the lease, so that another estimator can lead at once."""
        with _reachable():
            self._resign(keys=[self._leader_key], args=[self._name])

    def get(self, keys: Sequence[str]) -> list[Publication | None]:
        if not keys:
            return []
        with _reachable():
            raw = self._client.hmget(self._estimates_key, list(keys))
        return [None if value is None else _publication.decode(value) for value in raw]

    def history(self) -> list[Publication]:
        """Returns all publications kept, oldest step first."""
        with _reachable():
            raw = self._client.hvals(self._estimates_key)
        return _in_order([_publication.decode(value) for value in raw])


def _in_order(publications: list[Publication]) -> list[Publication]:
    return sorted(publications, key=lambda p: (p.step, p.attribute, p.span))


@contextmanager
def _reachable() -> Iterator[None]:
    try:
        yield
    except ERRORS as error:
        raise StoreUnavailable(f"Redis does not answer: {type(error).__name__}") from None
