"""`python -m lab.bench service` with a real Kafka and a real Redis, at tiny sizes: all measurements, and the clean-up."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import redis
from kafka import KafkaAdminClient

from lab.bench.service import DAY_S, QUICK, _check
from lab.bench.service_load import make_load
from lab.bench.service_site import BenchError, Site
from lab.bench.service_survey import ATTRIBUTES
from lab.bench.service_tables import PHASES
from ldpstream.engines import PaneKey
from ldpstream.engines.checkpoint import Checkpoint
from ldpstream.runtime.settings import Settings

ROOT = Path(__file__).parents[2]


def held(kafka: str) -> tuple[set[str], set[str]]:
    """Topics and consumer groups of the benchmark."""
    with KafkaAdminClient(bootstrap_servers=kafka) as admin:
        groups = {group["group_id"] for group in admin.list_groups()}
        return {t for t in admin.list_topics() if "bench-" in t}, {g for g in groups if "bench-" in g}


def test_the_command_measures_everything_and_cleans_up(kafka: str, redis_url: str, tmp_path: Path) -> None:
    file = tmp_path / "bench.json"
    environment = {"LDPSTREAM_KAFKA": kafka, "LDPSTREAM_REDIS": redis_url, "PYTHONPATH": str(ROOT)}
    environment["COLUMNS"] = "200"  # on a slow machine the numbers have more digits, and a narrow table breaks its words
    with redis.Redis.from_url(redis_url) as client:
        client.set("ldpstream:real:partitions", "kept")
        command = [sys.executable, "-m", "lab.bench", "service", "--quick", "--json", str(file)]
        done = subprocess.run(command, env=os.environ | environment, capture_output=True, text=True, cwd=tmp_path, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        assert client.keys("*") == [b"ldpstream:real:partitions"]
    assert held(kafka) == (set(), set())
    assert list(tmp_path.iterdir()) == [file]

    result = json.loads(file.read_text())
    assert [row["kind"] for row in result["counted"]] == [kind.name for kind in QUICK.kinds]
    for row, kind in zip(result["counted"], QUICK.kinds, strict=True):
        for run in (*row["bare"], *row["agent"]):
            assert 0 < run["records"] <= kind.records  # the benchmark measures from the first commit on
    assert set(result["phases"][0]["cpu_s_per_million"]) == set(PHASES)
    assert [(row["workers"], row["partitions"]) for row in result["growth"]] == list(QUICK.growth)
    assert "wanted 0.8" in done.stdout


def test_a_lost_or_doubled_report_is_detected(kafka: str, redis_url: str, tmp_path: Path) -> None:
    with Site(Settings(kafka=kafka, redis=redis_url), tmp_path, DAY_S, ATTRIBUTES, 1) as site:
        load = make_load(site.survey, (0, 2), 0, 100)
        assert site.store.commit(0, None, Checkpoint(load.records, 0, load.counts))
        _check(site, load)
        key = PaneKey(2, 0, 0)
        table = load.counts[key]
        moved = table.counts.copy()
        moved[[int(np.argmax(moved)), int(np.argmin(moved))]] += [-1, 1]
        wrong = type(table)(table.mechanism, table.n, moved)
        assert site.store.commit(0, (load.records, ""), Checkpoint(load.records + 1, 0, {key: wrong}))
        with pytest.raises(BenchError, match="100 of 100 reports"):
            _check(site, load)
    assert held(kafka) == (set(), set())
