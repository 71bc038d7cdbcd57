"""Tests of what the targets `verify-…` of the Makefile assume, without an engine or a cluster."""

import re
import shutil
from pathlib import Path

import pytest
import yaml

from tests.conftest import give_up
from tests.deploy.manifests import ROOT
from tests.deploy.verify import cluster, compose, image, stores
from tests.deploy.verify.engine import DOCKERFILE, Engine, VerifyError, run


def test_the_images_are_targets_of_the_dockerfile() -> None:
    stages = set(re.findall(r"(?m)^FROM \S+ AS (\S+)$", DOCKERFILE.read_text()))
    assert {target for target in image.IMAGES.values() if target is not None} <= stages
    assert len(re.findall(r"(?m)^FROM \S+@sha256:", DOCKERFILE.read_text())) == 1  # the base that an engine replaces


def test_every_compose_service_is_ours_or_has_a_stand_in() -> None:
    services = yaml.safe_load(compose.COMPOSE.read_text())["services"]
    foreign = {name for name, service in services.items() if service["image"] != "ldpstream"}
    assert foreign == {*compose.STAND_INS, "grafana"}
    assert {name: services[name].get("deploy", {}).get("replicas", 1) for name in compose.SCRAPED} == compose.SCRAPED
    graces = {service["stop_grace_period"] for name, service in services.items() if name not in foreign}
    assert graces == {f"{compose.GRACE_S}s"} == {f"{image.GRACE_S}s"}


class NothingToPull(Engine):
    """An engine that has the stand-in, and can pull nothing."""

    def __init__(self) -> None:
        super().__init__("docker", {})

    def docker(self, *arguments: str | Path, given: str | None = None) -> str:
        assert arguments[0] in {"pull", "images"}
        if arguments[0] == "pull":
            raise VerifyError("no network")
        return "sha256:1"


def test_the_replacements_cover_all_services(capsys: pytest.CaptureFixture[str]) -> None:
    changed, left_out = compose.replacements(NothingToPull())
    assert left_out == ["grafana"]
    assert {service["image"] for service in changed["services"].values()} == {image.FULL, image.GATEWAY, stores.IMAGE}
    assert yaml.safe_dump(changed).count("ports: !reset []") == 3  # page, gateway, Prometheus
    assert capsys.readouterr().out.count("cannot be pulled") == 3


def test_the_selectors_of_an_alert() -> None:
    found = compose.selectors()
    assert found["LdpstreamEstimateIncomplete"] == {'ldpstream_estimate_complete{span="step"}'}
    assert all(found.values())


def test_the_overlay_of_the_cluster_has_no_image_to_pull(tmp_path: Path) -> None:
    if shutil.which("kubectl") is None:
        give_up("no kubectl on PATH")
    folder = cluster.overlay(tmp_path)
    before = (cluster.MANIFESTS / "overlays" / "dev" / "surveys" / "demo.toml").read_text()
    assert (folder.parent / "dev" / "surveys" / "demo.toml").read_text() != before  # it starts now
    documents = list(yaml.safe_load_all(run(["kubectl", "kustomize", folder])))
    pods = [document["spec"]["template"]["spec"] for document in documents if document["kind"] in {"Deployment", "Job"}]
    containers = [container for pod in pods for container in pod["containers"]]
    assert {container["image"] for container in containers} == {
        f"docker.io/library/{name}:latest" for name in (image.FULL, stores.IMAGE)
    }
    assert {container["imagePullPolicy"] for container in containers} == {"Never"}


def test_every_target_of_the_makefile_is_a_module() -> None:
    [names] = re.findall(r"(?m)^(verify-.*): \$\(VENV\)", (ROOT / "Makefile").read_text())
    for name in names.split():
        assert (ROOT / "tests" / "deploy" / "verify" / f"{name.removeprefix('verify-')}.py").exists()
