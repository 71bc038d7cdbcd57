"""Tests of what the targets `verify-…` of the Makefile assume, without an engine or a cluster."""

import json
import re
import shutil
from pathlib import Path

import msgspec
import numpy as np
import pytest
import yaml

from ldpstream.agents.tally import Record, tally
from ldpstream.engines import PaneKey
from ldpstream.publishing.estimates.conclusions import conclude
from ldpstream.surveys import load_survey
from tests.conftest import give_up
from tests.deploy.manifests import refused
from tests.deploy.verify import compose, image, names, production, reach, stores, traffic
from tests.deploy.verify.engine import DOCKERFILE, Engine, VerifyError, run
from tests.deploy.verify.node import Cluster
from tests.deploy.verify.secure_stores import SecureStores


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


class NoCluster(Cluster):
    """Keeps the objects that are applied, and renders kustomizations."""

    def __init__(self, work: Path) -> None:
        self.work, self.applied = work, list[str]()

    def kubectl(self, *arguments: str | Path, given: str | None = None) -> str:
        if given is not None:
            self.applied.append(given)
        if "kustomize" in arguments:
            return run(["kubectl", *(one for one in arguments if one not in {"--namespace", "ldpstream"})])
        return json.dumps({"items": []})

    def start_names(self, namespace: str) -> None:
        assert namespace == "ldpstream"


def test_kubernetes_accepts_the_secure_stores(tmp_path: Path) -> None:
    made = SecureStores(NoCluster(tmp_path), tmp_path)
    made.surveys += ["demo", "second"]
    objects = made.objects()
    assert [reason for one in objects if (reason := refused(one)) is not None] == []
    secrets = {one["metadata"]["name"]: one["stringData"] for one in objects if one["kind"] == "Secret"}
    users = secrets["ldpstream-redis-config"]["users"]
    for role in ("agent", "estimator"):
        assert f">{secrets['ldpstream-redis'][role]} " in users
    assert users.count("ldpstream:{second:*}:counts") == users.count("ldpstream:{demo:*}:counts") > 0


def test_kubernetes_accepts_the_names_and_the_strangers() -> None:
    objects = [*names.objects(["kafka.ldpstream.svc.cluster.local,10.96.0.2"]), *reach.strangers()]
    assert [reason for one in objects if (reason := refused(one)) is not None] == []


def test_the_overlay_of_production_has_no_image_to_pull(tmp_path: Path) -> None:
    if shutil.which("kubectl") is None:
        give_up("no kubectl on PATH")
    site = production.Production(NoCluster(tmp_path), tmp_path)
    for name in ("demo", "second"):
        assert site.write_survey(name).name == name
    documents = list(yaml.safe_load_all(run(["kubectl", "kustomize", site.write_overlay(production.EARLIER)])))
    containers = {
        document["metadata"]["name"]: document["spec"]["template"]["spec"]["containers"][0]
        for document in documents
        if document["kind"] == "Deployment"
    }
    assert containers.keys() == {f"ldpstream-{component}" for component in production.COMPONENTS}
    for name, container in containers.items():
        ours = image.GATEWAY if name == "ldpstream-gateway" else image.FULL
        assert container["image"] == f"docker.io/library/{production.EARLIER[ours]}:latest"
        assert container["imagePullPolicy"] == "Never"
    [surveys] = [document["data"] for document in documents if document["metadata"]["name"] == "ldpstream-surveys"]
    assert surveys.keys() == {"demo.toml", "second.toml"}


def test_the_devices_tally_what_they_post(tmp_path: Path) -> None:
    survey = load_survey(production.DEMO)
    devices = traffic.Traffic(survey, "gateway.invalid", "token", seed=1)
    body, tables = devices.body(step=3)
    envelopes = msgspec.msgpack.decode(body, type=list[bytes])
    counted = tally(survey, [Record(i, survey.opens_ms(3), value) for i, value in enumerate(envelopes)])
    assert not counted.rejected
    assert counted.counts == tables
    assert sum(table.n for table in tables.values()) == traffic.ENVELOPES * traffic.REPORTS


def test_a_complete_publication_without_all_reports_is_found() -> None:
    survey = load_survey(production.DEMO)
    devices = traffic.Traffic(survey, "gateway.invalid", "token", seed=2)
    mechanism, rng = survey.mechanisms[0][0], np.random.default_rng(2)
    tables = [mechanism.tabulate(mechanism.simulate(np.zeros(n, np.int64), rng)) for n in (5, 7)]
    wanted = {PaneKey(0, 0, step): table for step, table in enumerate(tables)}
    devices.tables = dict(wanted)
    steps = [conclude(survey, 0, step, "step", [[tables[step]]], True) for step in range(2)]
    window = conclude(survey, 0, 1, "window", [[table] for table in tables], True)
    assert traffic.falsely_complete(survey, wanted, [*steps, window]) == []
    assert traffic.incomplete(survey, wanted, steps) == set()
    assert traffic.incomplete(survey, wanted, steps[:1]) == {("screen", 1)}
    more = traffic.tables_of([devices, devices])  # twice as many acknowledged reports as were published
    assert len(traffic.falsely_complete(survey, more, [*steps, window])) == 3
    late = conclude(survey, 0, 0, "step", [[tables[0]]], False)
    assert traffic.falsely_complete(survey, more, [late]) == []
