"""Tests of `python -m deploy.plan`: its costs against the measured points in the documents, and its input."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder

from deploy.plan import PEAK, RECORD_BYTES, Deployment, plan
from ldpstream.surveys import Survey, parse_survey
from ldpstream.surveys.questions import MAX_VALUES
from tests.ldpstream.test_cli import one_line

ROOT = Path(__file__).parents[2]
CAPACITY, RESULTS, SERVE = (ROOT / "docs" / name for name in ("howto/capacity.md", "evidence/speed.md", "howto/serve.md"))
NEAR = 0.3  # relative; runs on the shared machine differ by about a quarter


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "deploy.plan", *arguments], capture_output=True, text=True, cwd=ROOT, check=False,
        env={**os.environ, "COLUMNS": "160"},
    )  # fmt: skip


def survey(k: int, attributes: int = 1) -> Survey:
    text = 'name = "s"\nstart = 2026-01-05T00:00:00Z\nstep_seconds = 3600\nwindow_steps = 3\nlateness_steps = 0\n'
    text += 'collection = "smp"\n'
    for i in range(attributes):
        text += f'[[attribute]]\nname = "a{i}"\nsize = {k}\n'
        text += 'level = [{ name = "all", mechanism = "L-OSUE", eps_inf = 2.0, eps_1 = 1.0 }]\n'
    return parse_survey(tomllib.loads(text))


def measured(page: Path, pattern: str) -> tuple[float, ...]:
    """Returns the numbers of the one line of a page that matches."""
    [found] = re.findall(pattern, page.read_text())
    return tuple(float(number.replace(",", "")) for number in ([found] if isinstance(found, str) else found))


def billion(batch: int) -> Deployment:
    return plan(survey(300), 1e9, 3600, batch=batch)


@pytest.mark.parametrize("k", [800, MAX_VALUES])
def test_the_agents_cost_is_near_the_measured_cost(k: int) -> None:
    """The measured cost of an envelope lies on the line between the two measured sizes."""
    rows = r"\| {} \| bare consumer .*\n\| of (\d+) B \| agent \| .* \| ([\d.]+) \| \d+ \|"
    points = [measured(RESULTS, rows.format(log)) for log in ("one report, key", "16 KiB, bits")]
    found = plan(survey(k), 1e9, 3600)
    assert points[0][0] <= found.envelope_bytes <= points[1][0]
    sizes, costs = zip(*points, strict=True)
    cost = float(np.interp(found.envelope_bytes, sizes, costs))
    assert found.agent_cores / found.records * 1e6 == pytest.approx(cost, rel=NEAR)


@pytest.mark.parametrize(("row", "batch"), [("gateway, one report a request", 1), ("gateway, batches of 100 envelopes", 100)])
def test_the_gateways_cost_is_near_the_measured_cost(row: str, batch: int) -> None:
    [cores] = measured(CAPACITY, rf"\| {row} \|.* ([\d.]+) \|\n")
    found = billion(batch)
    assert found.gateway_cores == pytest.approx(cores, rel=NEAR)
    assert cores * PEAK * (1 - NEAR) <= found.gateways <= cores * PEAK * (1 + NEAR) + 1


def test_the_cost_of_serve_is_near_the_measured_cost() -> None:
    alone, batched = measured(
        SERVE, r"\| processor time of a report, with counting \| (\d+) µs alone, ([\d.]+) µs in a batch \|"
    )
    assert [billion(batch).serve_cores / billion(batch).records * 1e6 for batch in (1, 100)] == pytest.approx(
        [alone, batched], rel=NEAR
    )


def test_the_estimators_time_is_near_the_measured_time() -> None:
    p50, margin = measured(RESULTS, r"histograms of 20 attributes of k = 1000, .* p50 ([\d.]+) s, .* clocks is ([\d.]+) s")
    assert plan(survey(1000, attributes=20), 1000).estimator_seconds == pytest.approx(p50 - margin, rel=NEAR)


def test_the_log_is_as_large_as_the_batches_of_kafkas_client() -> None:
    found, n = billion(1), 200
    batch = DefaultRecordBatchBuilder(
        magic=2, compression_type=0, is_transactional=0, producer_id=1, producer_epoch=0, base_sequence=0, batch_size=10**6
    )
    for i in range(n):
        batch.append(i, 1_700_000_000_000 + i, None, bytes(int(found.envelope_bytes)), [("key", bytes(16))])
    one_copy = found.log_bytes_a_day / 3 / 86_400 / found.records
    assert one_copy == pytest.approx(len(batch.build()) / n, rel=0.05)
    assert one_copy - found.envelope_bytes == RECORD_BYTES


def test_report_keys_decide_partitions_and_agents_memory() -> None:
    """A billion keys an hour are in two open steps: 16 GB in the agents, and at most 4,194,304 in a partition and step."""
    found = billion(100)
    assert found.partitions == 263
    assert found.agents * (found.agent_memory - (364 << 20)) == pytest.approx(16e9)
    half = plan(survey(300), 5e8, 3600)
    assert half.partitions < found.partitions
    assert half.redis_memory < found.redis_memory


def test_the_command_prints_a_plan_or_one_line() -> None:
    done = command("--devices", "1e9", "--every", "3600")
    assert done.returncode == 0, done.stderr
    assert "277,777.8 records a second" in done.stdout
    one_line(command("--devices", "nan"), "devices", "nan")
    one_line(command("--devices", "1e9", "--every", "0"), "every", "0")
    one_line(command("--devices", "1e9", "--batch", "0"), "batch", "0")
