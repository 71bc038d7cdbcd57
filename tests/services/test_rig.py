"""Smoke tests of the rig, which starts a real Kafka and a real Redis. Both services keep their data over a restart."""

import os
from contextlib import closing
from pathlib import Path

import pytest

from deploy.local.kafka_jars import KAFKA_VERSION, JarsError, cached, fetch, jars_dir

from . import rig
from .rig import NodeError, RedisNode, free_ports


@pytest.mark.usefixtures("own_redis")
def test_the_error_names_a_port_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    (port,) = free_ports(1)
    monkeypatch.setattr(rig, "free_ports", lambda n_ports: [port])
    with RedisNode(), closing(RedisNode()) as second, pytest.raises(NodeError, match=f"port {port} .* is taken"):
        second.start()


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
