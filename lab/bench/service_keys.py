"""Measures what the report keys of open steps cost: memory, the duration of commits, and the time to load them again."""

import os
import time
import tracemalloc

import numpy as np

from lab.bench.service_results import Remembered
from lab.bench.service_site import BenchError, Site
from lab.bench.service_survey import SEED, random_reports
from ldpstream.agents import PartitionFold
from ldpstream.agents.consumer.batches import PIECE_RECORDS
from ldpstream.agents.tally import Records
from ldpstream.surveys import seal
from ldpstream.surveys.report_key import REPORT_KEY_BYTES

PARTITION = 0


def measure_keys(site: Site, n_keys: int) -> Remembered:
    envelope = seal(site.survey, 2, 0, 0, random_reports(site.survey, 2, 1, np.random.default_rng(SEED)))
    fold, commits_s = PartitionFold(site.survey, None), list[float]()
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    while fold.next_offset < n_keys:
        first, n = fold.next_offset, min(PIECE_RECORDS, n_keys - fold.next_offset)
        drawn = os.urandom(REPORT_KEY_BYTES * n)
        keys = tuple(drawn[i : i + REPORT_KEY_BYTES] for i in range(0, len(drawn), REPORT_KEY_BYTES))
        fold.feed(Records(range(first, first + n), (site.survey.start_ms,) * n, (envelope,) * n, keys))
        change = fold.changes()
        if change is None or fold.next_offset != first + n:
            raise BenchError(f"{fold.next_offset} of {first + n} records counted")
        began = time.perf_counter()
        if not site.store.commit(PARTITION, fold.stored_position, change):
            raise BenchError("a commit of report keys was refused")
        commits_s.append(time.perf_counter() - began)
        fold.committed(change)
    del drawn, keys, change
    after, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    began = time.perf_counter()
    checkpoint = site.store.load(PARTITION)
    loaded_s = time.perf_counter() - began
    PartitionFold(site.survey, checkpoint)
    ready_s = time.perf_counter() - began
    if checkpoint is None or sum(checkpoint.n_keys.values()) != n_keys:
        raise BenchError(f"not all of {n_keys} keys were loaded")
    strings = site.redis.scan_iter(match=f"ldpstream:*{site.survey.name}*:keys:*")
    redis_bytes = sum(site.redis.memory_usage(name) or 0 for name in strings)
    site.forget()
    p50, p99 = np.percentile(1000 * np.array(commits_s), [50, 99])
    in_agent, at_peak, in_redis = (round(n / n_keys, 1) for n in (after - before, peak - before, redis_bytes))
    return Remembered(n_keys, in_agent, at_peak, in_redis, len(commits_s), float(p50), float(p99), loaded_s, ready_s)
