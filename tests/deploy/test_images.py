"""The image and the compose file: pinned, without privileges, and with commands that exist."""

import re
import tomllib
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from ldpstream.cli import app
from surveys.settings import Settings
from tests.deploy.manifests import ROOT

DOCKERFILE = ROOT / "deploy" / "docker" / "Dockerfile"
COMPOSE = ROOT / "deploy" / "docker" / "compose.yaml"
DIGEST = re.compile(r"[\w./-]+:[\w.-]+@sha256:[0-9a-f]{64}")
SERVICES: dict[str, dict[str, Any]] = yaml.safe_load(COMPOSE.read_text())["services"]
OURS = {name: service for name, service in SERVICES.items() if service["image"] == "ldpstream"}


def test_the_base_image_is_pinned_and_the_image_has_no_privileges() -> None:
    lines = [line for line in DOCKERFILE.read_text().splitlines() if line and not line.startswith("#")]
    bases = [line.split()[1] for line in lines if line.startswith("FROM ")]
    stages = [line.split()[3] for line in lines if line.startswith("FROM ") and " AS " in line]
    assert all(DIGEST.fullmatch(base) or base in stages for base in bases)
    last = lines[max(i for i, line in enumerate(lines) if line.startswith("FROM ")) :]
    assert "USER 10001:10001" in last
    assert any(line.startswith("HEALTHCHECK ") for line in last)
    assert not any(line.startswith("ADD ") for line in lines)
    assert any("--require-hashes" in line for line in lines)


def test_every_package_is_copied_into_the_image() -> None:
    packages = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]
    folders = {package.partition(".")[0] for package in packages}  # with all that is in them
    assert [folder for folder in folders if f"COPY {folder} {folder}" not in DOCKERFILE.read_text()] == []


def test_images_are_pinned_by_digest() -> None:
    assert all(DIGEST.fullmatch(service["image"]) for name, service in SERVICES.items() if name not in OURS)


@pytest.mark.parametrize("name", OURS)
def test_our_containers_can_do_little(name: str) -> None:
    service = OURS[name]
    assert service["user"] == "10001:10001"
    assert service["read_only"] is True
    assert service["tmpfs"] == ["/tmp"]
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert not service.get("privileged")
    assert all(variable.removeprefix("LDPSTREAM_").lower() in Settings.model_fields for variable in service["environment"])
    command, *rest = service["command"]
    shown = CliRunner().invoke(app, [command, "--help"], env={"COLUMNS": "200", "TERM": "dumb", "NO_COLOR": "1"})
    assert shown.exit_code == 0
    assert all(word in shown.output for word in rest if word.startswith("--"))


def test_ports_are_open_on_this_machine_only() -> None:
    ports = [port for service in SERVICES.values() for port in service.get("ports", [])]
    assert len(ports) == 4
    assert all(port.startswith("127.0.0.1:") for port in ports)


def test_mounted_files_exist_and_prometheus_finds_every_process() -> None:
    for service in SERVICES.values():
        for volume in service.get("volumes", []):
            source = re.sub(r"\$\{\w+:-(.*?)\}", r"\1", volume).split(":")[0]
            assert not source.startswith("..") or (COMPOSE.parent / source).exists(), source
    scraped = yaml.safe_load((ROOT / "deploy" / "prometheus" / "prometheus.yml").read_text())["scrape_configs"]
    [found] = scraped[0]["dns_sd_configs"]
    assert set(found["names"]) == {name for name, s in OURS.items() if s["command"][0] in {"agent", "estimate", "gateway"}}
