"""Tests of what the targets `verify-…` of the Makefile assume, without an engine or a cluster."""

import re
from pathlib import Path

import msgspec
import numpy as np
import yaml

from ldpstream.agents.tally import Record, tally
from ldpstream.engines import PaneKey
from ldpstream.publishing.estimates.conclusions import conclude
from ldpstream.surveys import load_survey
from tests.deploy.verify import compose, image, production, traffic
from tests.deploy.verify.engine import DOCKERFILE


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
