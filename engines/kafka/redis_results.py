"""The results in Redis: publications, progress, states of the filters, and the leader's lease."""

import secrets
from collections.abc import Mapping, Sequence
from typing import cast

import redis

from ldpstream.engines.results import ResultStore, Row
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

# KEYS: lease. ARGV: name of the estimator.
_RESIGN = "if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('DEL', KEYS[1]) end"


class RedisResults(ResultStore):
    """Results in Redis, four keys per survey. The keys contain the fingerprint, so surveys never mix:

        ldpstream:{name:fingerprint}:progress      JSON of `Progress`
        ldpstream:{name:fingerprint}:estimates     hash: `Publication.key` -> JSON, of the last `retention_steps` steps. If this
                                                   number is lowered, earlier steps stay
        ldpstream:{name:fingerprint}:filters       hash: attribute -> state of the filter (`LocalLevel.to_bytes`)
        ldpstream:{name:fingerprint}:leader        name of the leading estimator (the lease); expires after 5 s, during a
                                                   take-over after 60 s

    Args:
        client: made by `redis_connection.connect`, which turns the library's errors into StoreUnavailable.
    """

    kind = "redis"

    def __init__(self, survey: Survey, client: redis.Redis) -> None:
        prefix = f"ldpstream:{{{survey.name}:{survey.fingerprint.hex()}}}"
        self._client, self.where = client, f"{prefix}:estimates"
        self.progress_name, self.filters_name = f"{prefix}:progress", f"{prefix}:filters"
        self.remedy = f"delete {self.progress_name} and {self.filters_name}, and the estimator starts at the log's oldest step"
        self.filters_remedy = "delete it, and the filtered curves start anew"
        self._save = client.register_script(_SAVE)
        self._leader_key, self._name = f"{prefix}:leader", secrets.token_hex(8)
        self._lead, self._resign = client.register_script(_LEAD), client.register_script(_RESIGN)

    def progress(self) -> bytes | None:
        return cast(bytes | None, self._client.get(self.progress_name))

    def filters(self) -> dict[str, bytes]:
        found = cast(dict[bytes, bytes], self._client.hgetall(self.filters_name))
        return {name.decode(): state for name, state in found.items()}

    def save(
        self, rows: Sequence[Row], before: bytes | None, progress: bytes, filters: Mapping[str, bytes], kept_from: int
    ) -> bool:
        """See `ResultStore`. Deletes the rows' outdated keys. If the retention is lowered, earlier steps stay."""
        arguments: list[bytes | str | int] = [before or b"", progress, len(rows), *(row.outdated for row in rows), len(filters)]
        for attribute, state in filters.items():
            arguments += [attribute, state]
        for row in rows:
            arguments += [row.key, row.value]
        return bool(self._save(keys=[self.progress_name, self.where, self.filters_name], args=arguments))

    def lead(self, for_ms: int | None = None) -> bool:
        return bool(self._lead(keys=[self._leader_key], args=[self._name, for_ms or LEASE_MS]))

    def resign(self) -> None:
        self._resign(keys=[self._leader_key], args=[self._name])

    def get(self, keys: Sequence[str]) -> list[bytes | None]:
        return cast(list[bytes | None], self._client.hmget(self.where, list(keys)))

    def history(self) -> list[tuple[str, bytes]]:
        found = cast(dict[bytes, bytes], self._client.hgetall(self.where))
        return [(key.decode(), value) for key, value in found.items()]
