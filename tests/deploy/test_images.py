"""Tests of the image and the compose file: images are pinned, processes have no privileges, commands exist."""

import json
import os
import re
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.utils import canonicalize_name
from typer.testing import CliRunner

from ldpstream.commands.cli import app
from ldpstream.runtime.settings import Settings
from tests.deploy.manifests import ROOT
from tests.ldpstream.rooms import FOLDERS, INSTALLED

DOCKERFILE = ROOT / "deploy" / "docker" / "Dockerfile"
REHEARSE = "rehearse /source.toml /survey/survey.toml --step-seconds 30"
LOCKS = ("requirements.lock", "requirements-gateway.lock")
SAMPLES = ROOT / "surveys" / "samples"
COMPOSE = ROOT / "deploy" / "docker" / "compose.yaml"
DIGEST = re.compile(r"[\w./-]+:[\w.-]+@sha256:[0-9a-f]{64}")
ONE_MACHINE = COMPOSE.with_name("one_machine.yaml")
SERVICES: dict[str, dict[str, Any]] = yaml.safe_load(COMPOSE.read_text())["services"]
OURS = {name: service for name, service in SERVICES.items() if service["image"] == "ldpstream"}
ALONE: dict[str, dict[str, Any]] = yaml.safe_load(ONE_MACHINE.read_text())["services"]


def test_the_image_is_pinned_and_unprivileged() -> None:
    lines = [line for line in DOCKERFILE.read_text().splitlines() if line and not line.startswith("#")]
    bases = [line.split()[1] for line in lines if line.startswith("FROM ")]
    stages = [line.split()[3] for line in lines if line.startswith("FROM ") and " AS " in line]
    assert all(DIGEST.fullmatch(base) or base in stages for base in bases)
    first = lines.index("FROM python AS unprivileged")
    last = [line for line in lines[first + 1 :] if not line.startswith("COPY ")]
    assert "USER 10001:10001" in last
    assert any(line.startswith("HEALTHCHECK ") for line in last)
    assert [line for line in last if line.startswith("FROM ")] == ["FROM unprivileged AS gateway", "FROM unprivileged"]
    assert not any(line.startswith("ADD ") for line in lines)
    installed = [line for line in lines if " install " in line and "/opt/ldpstream" in line]
    assert all("--require-hashes" in line or "--no-deps /wheels/" in line for line in installed)
    assert {line.split()[-2] for line in installed if "--require-hashes" in line} == set(LOCKS)


@pytest.mark.parametrize(("command", "serves", "healthy"), [
    ("agent", True, True), ("agent", False, False), ("estimate", False, False), ("gateway", False, False),
    ("demo", False, True), ("produce", False, True), ("advise", False, True),
])  # fmt: skip
def test_a_process_without_a_health_check_is_healthy(command: str, serves: bool, healthy: bool, tmp_path: Path) -> None:
    [check] = re.findall(r"(?m)^HEALTHCHECK .*\\\n +CMD (\[.*\])$", DOCKERFILE.read_text())
    program, option, code = json.loads(check)
    assert (program, option) == ("python", "-c")
    (tmp_path / "cmdline").write_bytes(b"\0".join([b"/bin/python", b"/bin/ldpstream", command.encode(), b"survey.toml", b""]))
    with HTTPServer(("127.0.0.1", 0), Healthy) as server:
        port = server.server_port
        if serves:
            threading.Thread(target=server.handle_request, daemon=True).start()
        else:
            server.socket.close()
        changed = code.replace("/proc/1/cmdline", str(tmp_path / "cmdline")).replace(":9100/", f":{port}/")
        assert changed.count(str(tmp_path)) == changed.count(f":{port}/health") == 1
        done = subprocess.run([sys.executable, "-c", changed], capture_output=True, check=False)
    assert (done.returncode == 0) is healthy, done.stderr


class Healthy(BaseHTTPRequestHandler):
    """Answers every request with 200."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""


def test_every_package_is_copied_into_the_image() -> None:
    """The image has exactly the folders that the wheel packs, and the build context has all of them."""
    folders = {FOLDERS[room] for room in INSTALLED} - {FOLDERS["ldpstream"]} | {"src"}
    assert set(re.findall(r"(?m)^COPY ([\w/]+) \1$", DOCKERFILE.read_text())) == folders
    assert folders < set(re.findall(r"(?m)^!([\w/]+)$", (ROOT / ".dockerignore").read_text()))


def test_the_gateway_has_a_part_of_the_locked_packages() -> None:
    """The gateway's image lacks the packages for counting and estimates, and has no other version of the rest."""
    full, part = (set(re.findall(r"(?m)^([\w.-]+==\S+.*?) \\$", (ROOT / name).read_text())) for name in LOCKS)
    assert part < full
    missing = {line.partition("==")[0] for line in full - part}
    assert {"numba", "llvmlite", "scipy", "faust-streaming", "redis"} <= missing


def test_the_gateway_imports_only_its_packages() -> None:
    """With only the packages of its image, the modules of `ldpstream gateway` load, and read every sample survey."""
    names = {line.partition("==")[0] for line in re.findall(r"(?m)^[\w.-]+==", (ROOT / LOCKS[0]).read_text())}
    extra = names - {line.partition("==")[0] for line in re.findall(r"(?m)^[\w.-]+==", (ROOT / LOCKS[1]).read_text())}
    modules = {module for module, packages in packages_distributions().items() if {*map(canonicalize_name, packages)} <= extra}
    assert {"numba", "scipy", "faust", "redis"} <= modules
    code = f"import sys; sys.modules.update(dict.fromkeys({sorted(modules)}))\n"
    code += (
        "from ldpstream.commands.cli import app\nimport ldpstream.gateway.gateway_process, ldpstream.engines.kafka.topic_keeper"
    )
    code += "\nimport ldpstream.engines.kafka.kafka_connection"
    code += "\nfrom ldpstream.surveys import load_survey\nfrom pathlib import Path"
    code += f"\nfor path in Path({str(SAMPLES)!r}).glob('*.toml'): load_survey(path)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_images_are_pinned_by_digest() -> None:
    assert all(DIGEST.fullmatch(service["image"]) for name, service in SERVICES.items() if name not in OURS)


@pytest.mark.parametrize("name", [*OURS, *ALONE])
def test_our_containers_have_minimal_rights(name: str) -> None:
    service = (OURS | ALONE)[name]
    assert service["user"] == "10001:10001"
    assert service["read_only"] is True
    assert service["tmpfs"] == ["/tmp"]
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert not service.get("privileged")
    assert all(variable.removeprefix("LDPSTREAM_").lower() in Settings.model_fields for variable in service["environment"])
    command, *rest = REHEARSE.split() if "entrypoint" in service else service["command"]
    shown = CliRunner().invoke(app, [command, "--help"], env={"COLUMNS": "200", "TERM": "dumb", "NO_COLOR": "1"})
    assert shown.exit_code == 0
    assert all(word in shown.output for word in rest if word.startswith("--"))


def test_a_second_up_keeps_the_survey(tmp_path: Path) -> None:
    """Running processes would not follow another survey. Another source replaces the survey."""
    [line] = SERVICES["survey"]["command"]
    assert REHEARSE in line
    line = line.replace("/source.toml", str(source := tmp_path / "source.toml")).replace("/survey/", f"{tmp_path}/")
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    written = []
    for text in (first := (SAMPLES / "demo.toml").read_text(), first, first + "# another\n"):
        source.write_text(text)
        subprocess.run(["sh", "-c", line], env=environment, check=True)
        written.append((tmp_path / "survey.toml").read_text())
    assert written[0] == written[1] != written[2]


def test_ports_are_open_on_this_machine_only() -> None:
    ports = [port for service in [*SERVICES.values(), *ALONE.values()] for port in service.get("ports", [])]
    assert len(ports) == 6
    assert all(port.startswith("127.0.0.1:") for port in ports)


def test_the_one_container_keeps_its_data_in_a_volume_that_it_may_write() -> None:
    [service] = ALONE.values()
    data = service["command"][service["command"].index("--data") + 1]
    assert f"data:{data}" in service["volumes"]
    assert "data" in yaml.safe_load(ONE_MACHINE.read_text())["volumes"]
    assert re.search(rf"install --directory --owner=10001 --group=10001 .*{data}( |$)", DOCKERFILE.read_text(), re.MULTILINE)


def test_mounted_files_exist_and_prometheus_scrapes_all() -> None:
    for service in [*SERVICES.values(), *ALONE.values()]:
        for volume in service.get("volumes", []):
            source = re.sub(r"\$\{\w+:-(.*?)\}", r"\1", volume).split(":")[0]
            assert not source.startswith("..") or (COMPOSE.parent / source).exists(), source
    scraped = yaml.safe_load((ROOT / "deploy" / "prometheus" / "prometheus.yml").read_text())["scrape_configs"]
    [found] = scraped[0]["dns_sd_configs"]
    assert set(found["names"]) == {name for name, s in OURS.items() if s["command"][0] in {"agent", "estimate", "gateway"}}
