"""Runs the real `compose.yaml` up to complete estimates: `make verify-compose`.

Images that cannot be pulled are replaced by a stand-in of Debian's packages. Without Grafana's image, everything else runs. The
command fails if Prometheus does not scrape every process, if an alert's expression has no data, if no complete estimate of all
attributes is published, or if a process does not end within its grace.
"""

import json
import re
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any
from urllib.parse import quote

import yaml

from ldpstream.surveys import load_survey
from tests.deploy.manifests import ROOT
from tests.deploy.tools import fetched
from tests.deploy.verify import stores
from tests.deploy.verify.engine import Engine, VerifyError, engine, run, wait_for
from tests.deploy.verify.image import FULL, GATEWAY, IMAGES, check, say, verification

COMPOSE = ROOT / "deploy" / "docker" / "compose.yaml"
RULES = ROOT / "deploy" / "prometheus" / "alerts.yaml"
SURVEY = ROOT / "surveys" / "samples" / "demo.toml"
VERSION = "v2.40.3"
MODULE = "github.com/docker/compose/v2"
PROJECT = "ldpstream-verify"
GRACE_S = 15  # `stop_grace_period` of our services
NOT_IN_SURVEY = {  # alerts whose metrics exist only for surveys with something that the demo survey lacks
    "LdpstreamCrowdTooSmall": "`crowd`",
    "LdpstreamOtherGrew": "a value for texts that are not listed",
}
SCRAPED = {"agent": 2, "estimate": 1, "gateway": 1}  # containers of each process

# Prints the body of a page; in a container, because no port of this machine is published.
GET = "import sys, urllib.request; sys.stdout.write(urllib.request.urlopen(sys.argv[1], timeout=20).read().decode())"


def plugin() -> Path:
    """Returns Docker Compose, built from its Go module. The first call takes some minutes.

    Raises:
        VerifyError: if Docker Compose cannot be built.
    """
    if (go := shutil.which("go")) is None:
        raise VerifyError("the engine's client has no `compose`, and there is no go to build it")

    def build(folder: Path) -> None:
        with tempfile.TemporaryDirectory() as scratch:
            (Path(scratch) / "go.mod").write_text(f"module verify\n\ngo 1.24.0\n\nrequire {MODULE} {VERSION}\n")
            (Path(scratch) / "tools.go").write_text(f'//go:build tools\n\npackage verify\n\nimport _ "{MODULE}/cmd"\n')
            run([go, "-C", scratch, "mod", "tidy", "-e"])
            run([go, "-C", scratch, "build", "-trimpath", "-ldflags=-s -w", "-o", folder / "docker-compose", f"{MODULE}/cmd"])

    return fetched(f"docker-compose-{VERSION}", build) / "docker-compose"


class Project:
    """The real compose file with a file of replacements, as a project of its own."""

    def __init__(self, docker: Engine, override: Path) -> None:
        self.docker, self._files = docker, ["--project-name", PROJECT, "--file", str(COMPOSE), "--file", str(override)]
        try:
            docker.docker("compose", "version")
            self._program = [docker.program, "compose"]
        except VerifyError:
            self._program = [str(plugin())]

    def compose(self, *arguments: str) -> str:
        """Runs `docker compose …` and returns its output."""
        return run([*self._program, *self._files, *arguments], self.docker.env)

    def containers(self, service: str) -> list[dict[str, Any]]:
        """The containers of a service, running or not."""
        return [json.loads(line) for line in self.compose("ps", "--all", "--format", "json", service).splitlines()]

    def get(self, url: str) -> Any:
        """Returns a JSON page, seen from the estimator's container."""
        return json.loads(self.compose("exec", "--no-TTY", "estimate", "python", "-c", GET, url))

    def query(self, expression: str) -> list[dict[str, Any]]:
        """Returns what Prometheus answers to an expression."""
        answer = self.get(f"http://prometheus:9090/api/v1/query?query={quote(expression)}")
        found: list[dict[str, Any]] = answer["data"]["result"]
        return found


def replacements(docker: Engine) -> tuple[dict[str, Any], list[str]]:
    """Returns a compose file that replaces what cannot be pulled and publishes no port, and the services that are left out."""
    services = yaml.safe_load(COMPOSE.read_text())["services"]
    changed: dict[str, dict[str, Any]] = {name: {} for name in services}
    left_out = []
    for name, service in services.items():
        if service["image"] == "ldpstream":
            changed[name]["image"] = GATEWAY if name == "gateway" else FULL
            continue
        try:
            docker.docker("pull", "--quiet", service["image"])
        except VerifyError:
            if name == "grafana":
                left_out.append(name)
                continue
            stores.build(docker)
            say(f"- {name}: {service['image'].partition('@')[0]} cannot be pulled here; replaced by the stand-in")
            changed[name] |= {"image": stores.IMAGE} | STAND_INS[name]
    for name in changed:
        if "ports" in services[name]:
            changed[name]["ports"] = Reset()
    return {"services": {name: change for name, change in changed.items() if name not in left_out}}, left_out


STAND_INS: dict[str, dict[str, Any]] = {
    "kafka": {"user": "1000:1000", "healthcheck": {"test": ["CMD", "bash", "-c", "exec 3<>/dev/tcp/127.0.0.1/9092"]}},
    # the image of Redis switches the protected mode off, too
    "redis": {"command": "redis-server --appendonly yes --save '' --maxmemory-policy noeviction --protected-mode no"},
    "prometheus": {"command": "prometheus --config.file=/etc/prometheus/prometheus.yml --storage.tsdb.path=/prometheus"},
}


class Reset:
    """An empty list that replaces the list of the first file; Compose would otherwise join both."""


yaml.SafeDumper.add_representer(Reset, lambda dumper, _: dumper.represent_sequence("!reset", []))


def selectors() -> dict[str, set[str]]:
    """The metrics with labels that each alert's expression reads, by alert."""
    rules = [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]
    return {rule["alert"]: set(re.findall(r"ldpstream_\w+(?:\{[^}]*\})?", rule["expr"])) for rule in rules}


def await_estimates(project: Project) -> None:
    """Waits until a complete estimate of every attribute is published, and the page answers.

    Raises:
        VerifyError: if that takes too long.
    """
    attributes = {attribute.name for attribute in load_survey(SURVEY).attributes}
    began = time.monotonic()

    def complete() -> set[str]:
        found = project.query('ldpstream_estimate_complete{span="step"} == 1 and ldpstream_estimate_reports{span="step"} > 0')
        return {row["metric"]["attribute"] for row in found}

    wait_for(lambda: complete() == attributes, lambda: f"complete estimates of {attributes}; complete: {complete()}")
    say(f"- complete estimates of {', '.join(sorted(attributes))}: {time.monotonic() - began:.0f} s after the start")
    for attribute in sorted(attributes):
        shares = project.get(f"http://127.0.0.1:8080/api/v1/attributes/{attribute}/histogram?span=step")
        say(f"- the API answers with step {shares['step']} of {attribute}: {shares['reports']:,} reports")


def check_prometheus(project: Project) -> None:
    """Checks that Prometheus scrapes every process, and that every metric of an alert has data.

    Raises:
        VerifyError: if a process or a metric is missing.
    """
    targets = project.get("http://prometheus:9090/api/v1/targets")["data"]["activeTargets"]
    check("healthy targets", [target["health"] for target in targets], ["up"] * sum(SCRAPED.values()))
    found = {alert: read for alert, read in selectors().items() if alert not in NOT_IN_SURVEY}
    empty = {alert: lacking for alert, read in found.items() if (lacking := [one for one in read if not project.query(one)])}
    if empty:
        raise VerifyError(f"alerts that read metrics without data: {empty}")
    firing = [row["metric"]["alertname"] for row in project.query('ALERTS{alertstate="firing"}')]
    say(f"- Prometheus scrapes {len(targets)} processes; all metrics of {len(found)} alerts have data")
    for alert, thing in NOT_IN_SURVEY.items():
        say(f"- not tried: {alert}, because the survey lacks {thing}")
    say(f"- firing alerts: {', '.join(firing) or 'none'}")


def check_gateway(project: Project) -> None:
    """Sends a step of reports through the gateway, which runs in its own small image.

    Raises:
        VerifyError: if the gateway does not acknowledge all of them.
    """
    command = ["produce", "/survey/survey.toml", "--users", "1", "--steps", "1", "--gateway", "http://gateway:8081"]
    said = project.compose("run", "--rm", "--no-deps", "--no-TTY", "produce", *command)
    if "1 report acknowledged by the gateway." not in said:
        raise VerifyError(f"the gateway did not acknowledge a report: {said[-300:]!r}")
    say("- the gateway, in its own image, acknowledged a report")


def check_again(project: Project) -> None:
    """Runs `up` again, and checks that the survey of the running processes stays.

    Raises:
        VerifyError: if another survey replaces it.
    """
    show = ("exec", "--no-TTY", "estimate", "cat", "/survey/survey.toml")
    before = project.compose(*show)
    project.compose("up", "--detach", "--no-build", "--no-recreate", "survey")
    wait_for(lambda: {row["State"] for row in project.containers("survey")} == {"exited"}, lambda: "the container survey ends")
    check("survey after a second `up`", project.compose(*show), before)
    say("- a second `up` keeps the survey")


def check_ends(project: Project) -> None:
    """Stops each of our processes while it works, and checks that it ends in time.

    Raises:
        VerifyError: if a process has to be killed.
    """
    for service in ("produce", "gateway", "agent", "estimate"):
        began = time.monotonic()
        project.compose("stop", service)
        took = time.monotonic() - began
        codes = [row["ExitCode"] for row in project.containers(service)]
        if any(code not in {0, 143} for code in codes):
            raise VerifyError(f"{service} ended with {codes}, {took:.1f} s after SIGTERM (at most {GRACE_S} s)")
        say(f"- {service}: ended {took:.1f} s after SIGTERM")


def verify(docker: Engine) -> None:
    """Runs the project up to complete estimates, checks it, and removes it."""
    say(f"Engine: {docker.describe()}")
    for image, target in IMAGES.items():
        note = docker.build(image, target)
    say(f"- {note}")
    with tempfile.TemporaryDirectory() as scratch:
        changed, left_out = replacements(docker)
        (override := Path(scratch) / "override.yaml").write_text(yaml.safe_dump(changed))
        if left_out:
            say(f"- left out, because they cannot be pulled here: {', '.join(left_out)}")
        project = Project(docker, override)
        wanted = [name for name in changed["services"] if name != "produce"]
        try:
            began = time.monotonic()
            project.compose("up", "--detach", "--no-build", *wanted, "produce")
            project.compose(
                "up", "--detach", "--no-build", "--no-recreate", "--wait", "kafka", "redis", "agent", "estimate", "gateway"
            )
            say(f"- all containers are healthy {time.monotonic() - began:.0f} s after the start")
            await_estimates(project)
            check_gateway(project)
            check_again(project)
            check_prometheus(project)
            check_ends(project)
        except VerifyError:
            sys.stderr.write(project.compose("logs", "--tail", "5", "--no-color"))
            raise
        finally:
            project.compose("down", "--volumes", "--timeout", str(GRACE_S))


if __name__ == "__main__":
    with verification("verify-compose"), engine() as docker:
        verify(docker)
