"""The results in Redis: publications, progress, states of the filters, and the leader's lease."""

import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import cast

import msgspec

from ldpstream.engines.formats import check_format
from ldpstream.engines.kafka.redis_connection import ERRORS, Client, Command, check_rights, store_error
from ldpstream.estimators.filter.local_level import FORMAT as FILTER_FORMAT
from ldpstream.publishing.estimates.publication import Publication
from ldpstream.publishing.progress import Filters, Progress
from ldpstream.publishing.results import KeptResults, decode_progress, in_order, state_format
from ldpstream.publishing.stored import StoredReader
from ldpstream.runtime.settings import Settings
from ldpstream.surveys import Survey

LEASE_MS = 5_000  # the leader renews the lease before an attribute of a step, if 0.25 s have passed (`schedule.RENEW_S`)

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

# KEYS: lease. ARGV: name of the estimator, duration in ms.
_RENEW = "if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2]) end"

# KEYS: lease. ARGV: name of the estimator.
_RESIGN = "if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('DEL', KEYS[1]) end"

# KEYS: lease, rival. ARGV: name of the estimator, duration in ms.
_BALANCE = """
local function rank(name) return redis.sha1hex(KEYS[1] .. name) end
local leader, rival = redis.call('GET', KEYS[1]), redis.call('GET', KEYS[2])
if leader == ARGV[1] then
  if not rival or rank(rival) <= rank(leader) then return 0 end
  redis.call('DEL', KEYS[2])
  redis.call('SET', KEYS[1], rival, 'PX', ARGV[2])
  return 1
end
if leader and rank(ARGV[1]) > rank(leader) and (not rival or rank(ARGV[1]) >= rank(rival)) then
  redis.call('SET', KEYS[2], ARGV[1], 'PX', ARGV[2])
end
return 0
"""


class RedisResults(KeptResults):
    """Results in Redis, five keys per survey. The keys contain the fingerprint, so surveys never mix:

        ldpstream:{name:fingerprint}:progress      JSON of `Progress`
        ldpstream:{name:fingerprint}:estimates     hash: `Publication.key` -> JSON, of the last `retention_steps` steps. If this
                                                   number is lowered, earlier steps stay
        ldpstream:{name:fingerprint}:filters       hash: attribute -> state of the filter (`LocalLevel.to_bytes`)
        ldpstream:{name:fingerprint}:leader        name of the leading estimator (the lease); expires after 5 s, during a
                                                   take-over after 60 s
        ldpstream:{name:fingerprint}:rival         name of an estimator that should lead instead (`balance`); expires after 5 s

    Raises:
        StoreUnavailable: from every method, if Redis does not answer, or refuses the request.
        OtherFormat: from the methods that decode stored objects, if an object has another format.
        StoreDamaged: from `progress`, if the stored progress cannot be decoded.
    """

    def __init__(self, survey: Survey, client: Client, reader: StoredReader | None = None) -> None:
        prefix = f"ldpstream:{{{survey.name}:{survey.fingerprint.hex()}}}"
        super().__init__(survey, reader or StoredReader(survey), "redis", f"{prefix}:estimates")
        self._client, self._progress_key, self._estimates_key = client, f"{prefix}:progress", f"{prefix}:estimates"
        self._filters_key = f"{prefix}:filters"
        self._save = client.register_script(_SAVE)
        self._seen: tuple[Progress | None, bytes] = (None, b"")  # the progress last read, and its bytes in Redis
        self._leader_key, self._name = f"{prefix}:leader", secrets.token_hex(8)
        self._rival_key = f"{prefix}:rival"
        self._lead, self._resign = client.register_script(_LEAD), client.register_script(_RESIGN)
        self._renew, self._balance = client.register_script(_RENEW), client.register_script(_BALANCE)

    def check(self, settings: Settings) -> None:
        """Raises StoreRefused if Redis refuses a command or our login; the error names the reason."""
        progress, estimates, filters = self._progress_key, self._estimates_key, self._filters_key
        saved: list[Command] = [("EVALSHA", "", 3, progress, estimates, filters), ("GET", progress), ("SET", progress, 0)]
        saved += [("HGETALL", filters), ("HSET", filters, 0, 0)]
        kept: list[Command] = [
            ("HMGET", estimates, 0),
            ("HGETALL", estimates),
            ("HSET", estimates, 0, 0),
            ("HDEL", estimates, 0),
        ]
        led: list[Command] = [("EVALSHA", "", 2, self._leader_key, self._rival_key)]
        for key in (self._leader_key, self._rival_key):
            led += [("GET", key), ("SET", key, 0, "PX", 1), ("DEL", key)]
        check_rights(self._client, settings, [*saved, *kept, *led])

    def progress(self) -> Progress | None:
        with _reachable():
            raw = cast(bytes | None, self._client.get(self._progress_key))
        remedy = f"delete {self._progress_key} and {self._filters_key}, and the estimator starts at the log's oldest step"
        self._seen = seen = (None, b"") if raw is None else (decode_progress(raw, self._progress_key, remedy, remedy), raw)
        return seen[0]

    def filters(self) -> dict[str, bytes]:
        with _reachable():
            raw = cast(dict[bytes, bytes], self._client.hgetall(self._filters_key))
        for state in raw.values():
            check_format(self._filters_key, state_format(state), FILTER_FORMAT, "delete it, and the filtered curves start anew")
        return {name.decode(): state for name, state in raw.items()}

    def save(
        self, publications: list[Publication], before: Progress | None, progress: Progress, filters: Filters | None = None
    ) -> bool:
        """See `publishing.progress.Results`."""
        old = [msgspec.structs.replace(p, step=p.step - self._survey.retention_steps).key for p in publications]
        seen, raw = self._seen  # read once: the page's threads also read the progress
        written = b"" if before is None else msgspec.json.encode(before)
        arguments: list[bytes | str | int] = [raw if before == seen else written]
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

    def renew(self) -> None:
        with _reachable():
            self._renew(keys=[self._leader_key], args=[self._name, LEASE_MS])

    def balance(self) -> bool:
        """Passes the lease to an announced estimator of higher rank, or announces this one to a leader of lower rank.

        Returns:
            True if this estimator passed its lease to the rival.
        """
        with _reachable():
            return bool(self._balance(keys=[self._leader_key, self._rival_key], args=[self._name, LEASE_MS]))

    def resign(self) -> None:
        with _reachable():
            self._resign(keys=[self._leader_key], args=[self._name])

    def _raw(self, keys: Sequence[str]) -> list[bytes | None]:
        with _reachable():
            return cast(list[bytes | None], self._client.hmget(self._estimates_key, list(keys)))

    def history(self) -> list[Publication]:
        with _reachable():
            raw = cast(dict[bytes, bytes], self._client.hgetall(self._estimates_key))
        found = [self._decoded(key.decode(), value) for key, value in raw.items()]
        return in_order([p for p in found if p is not None])


@contextmanager
def _reachable() -> Iterator[None]:
    try:
        yield
    except ERRORS as error:
        raise store_error(error, "Redis") from None
