"""Smoke tests of the rig, which starts a real Kafka and a real Redis. Both services keep their data over a restart."""

import os
import shutil
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest
import redis

from deploy.local.kafka_jars import KAFKA_VERSION, JarsError, cached, fetch, jars_dir
from ldpstream.runtime.process import start_child

from . import rig
from .rig import PATIENCE_S, NodeError, RedisNode, free_ports


def ping_for(client: redis.Redis, seconds: float) -> None:
    """Pings for `seconds` seconds; raises the first error of a ping."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        client.ping()


@pytest.mark.usefixtures("own_redis")
def test_the_error_names_a_port_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    (port,) = free_ports(1)
    monkeypatch.setattr(rig, "free_ports", lambda n_ports: [port])
    with RedisNode(), closing(RedisNode()) as second, pytest.raises(NodeError, match=f"port {port} .* is taken"):
        second.start()


@pytest.mark.skipif(shutil.which("setpriv") is None, reason="without setpriv, a node outlives a killed owner")
@pytest.mark.usefixtures("own_redis")
def test_nodes_end_with_the_process_that_started_them(tmp_path: Path) -> None:
    script = "from tests.services.rig import RedisNode; n = RedisNode(); n.start(); print(n.url, flush=True); input()"
    owner = start_child(
        [sys.executable, "-c", script],
        cwd=Path(__file__).parents[2],
        env=os.environ | {"TMPDIR": str(tmp_path)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with owner:
        assert owner.stdout is not None
        url = owner.stdout.readline().strip()
        with redis.Redis.from_url(url, retry=None) as client:
            assert client.ping()
            owner.kill()
            owner.wait()
            with pytest.raises(redis.ConnectionError):
                ping_for(client, PATIENCE_S)


def test_a_failed_download_leaves_no_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = tmp_path / "bin" / "mvn"
    broken.parent.mkdir()
    broken.write_text("#!/bin/sh\necho no such mirror; exit 1\n")
    broken.chmod(0o755)
    monkeypatch.setenv("PATH", f"{broken.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("LDPSTREAM_CACHE", str(tmp_path / "cache"))
    with pytest.raises(JarsError, match=rf"(?s)Kafka {KAFKA_VERSION} \(exit code 1\).*no such mirror"):
        fetch()
    assert not cached()
    assert list(jars_dir().parent.iterdir()) == []
