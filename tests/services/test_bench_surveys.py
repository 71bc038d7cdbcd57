"""`python -m lab.bench surveys` with a real Kafka and a real Redis, at tiny sizes: all measurements, and the clean-up."""

import json
import os
import subprocess
import sys
from pathlib import Path

import redis

from lab.bench.surveys import QUICK

from .test_bench_service import ROOT, held


def test_the_command_measures_two_surveys_and_cleans_up(kafka: str, redis_url: str, kernels: None, tmp_path: Path) -> None:
    file = tmp_path / "bench.json"
    environment = {"LDPSTREAM_KAFKA": kafka, "LDPSTREAM_REDIS": redis_url, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "lab.bench", "surveys", "--quick", "--json", str(file)]
    done = subprocess.run(command, env=os.environ | environment, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    with redis.Redis.from_url(redis_url) as client:
        assert client.dbsize() == 0
    assert held(kafka) == (set(), set())
    assert list(tmp_path.iterdir()) == [file]

    result = json.loads(file.read_text())
    [row] = result["served"]
    assert (row["surveys"], row["deployments"], row["records"], row["steps"]) == (2, 1, QUICK.records, QUICK.steps)
    assert row["counted_s"] > 0
    assert 0 < row["late_s"][0] <= row["late_s"][1]
    for role in ("agents", "estimators"):
        costs = row[role]["costs"]
        assert min(costs["resident_mib"], costs["kafka_connections"], costs["redis_connections"]) > 0
