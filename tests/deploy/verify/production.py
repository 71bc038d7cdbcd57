"""Runs the overlay `production` while devices report: faults, changed surveys, an upgrade and its rollback.

Devices post a known data set through the gateways' Service during the whole trial. At the end the counts must equal the tally
of the acknowledged reports, and no publication may have been complete too early.
"""

import json
import os
import random
import re
import secrets
import shutil
import signal
import time
from collections.abc import Callable
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

from ldpstream.surveys import Survey, load_survey
from tests.deploy.manifests import ROOT
from tests.deploy.verify import stores
from tests.deploy.verify.engine import WITHIN, VerifyError, wait_for
from tests.deploy.verify.image import FULL, GATEWAY, check, say
from tests.deploy.verify.node import NODES, Cluster
from tests.deploy.verify.reach import check_policies
from tests.deploy.verify.secure_stores import KAFKA, NAMESPACE, REDIS, SecureStores
from tests.deploy.verify.traffic import Traffic, check_counted

MANIFESTS = ROOT / "deploy" / "kubernetes"
DEMO = ROOT / "surveys" / "samples" / "demo.toml"
EARLIER = {name: f"{name}-earlier" for name in (FULL, GATEWAY)}  # images of the version that is upgraded
GATEWAYS = 3
COMPONENTS = ("estimator", "agent", "gateway")  # in the order of docs/howto/upgrade.md
STEP_S, LATENESS, WINDOW = 30, 4, 400  # a window of all steps: no counts are removed before the check
ENDS = 14  # number of steps of the survey that ends during the trial
DOWN_S = 20.0  # the control plane stays down
SEED = 6607


class Production:
    """The overlay `production` with its stores, surveys and devices.

    Args:
        cluster: the cluster, with the namespace of production.
        work: an empty folder.
        strimzi: `deploy/kubernetes/strimzi` of the version that is upgraded.
    """

    def __init__(self, cluster: Cluster, work: Path, strimzi: Path) -> None:
        self._cluster, self._work = cluster, work
        self.stores = SecureStores(cluster, work, strimzi)
        shutil.copytree(MANIFESTS, work / "kubernetes")
        self._overlay = work / "kubernetes" / "overlays" / "production"
        self._surveys = self._overlay / "surveys"
        (self._surveys / "demo.toml").unlink()
        self._random = random.Random(SEED)
        self._devices: dict[str, list[Traffic]] = {}

    def kubectl(self, *arguments: str | Path, given: str | None = None) -> str:
        """Runs `kubectl …` in the namespace."""
        return self._cluster.kubectl("--namespace", NAMESPACE, *arguments, given=given)

    # ---- the overlay

    def write_survey(self, name: str, more: str = "") -> Survey:
        """Writes a survey that starts now into the overlay. `more` has further keys."""
        text = DEMO.read_text()
        start = datetime.fromtimestamp(int(time.time()), UTC)
        keys = {"name": f'"{name}"', "start": f"{start:%Y-%m-%dT%H:%M:%SZ}", "step_seconds": STEP_S}
        for key, value in (keys | {"lateness_steps": LATENESS, "window_steps": WINDOW}).items():
            text = re.sub(rf"(?m)^{key} = .*$", f"{key} = {value}", text, count=1)
        file = self._surveys / f"{name}.toml"
        file.write_text(more + text)
        return load_survey(file)

    def write_overlay(self, images: dict[str, str]) -> Path:
        """Lists the surveys of the overlay, and returns an overlay with these images.

        Args:
            images: our image: image that is used.
        """
        listed = ", ".join(f"surveys/{file.name}" for file in sorted(self._surveys.glob("*.toml")))
        file = self._overlay / "kustomization.yaml"
        file.write_text(re.sub(r"files: \[.*\]", f"files: [{listed}]", file.read_text()))
        names = {"registry.example/ldpstream": FULL, "registry.example/ldpstream-gateway": GATEWAY}
        container = "/spec/template/spec/containers/0"
        patches = [  # the kubelet would pull an image `latest` again; two cores have no room for the requests of all pods
            {"op": "add", "path": f"{container}/imagePullPolicy", "value": "Never"},
            {"op": "replace", "path": f"{container}/resources/requests/cpu", "value": "50m"},
        ]
        verify = {
            "resources": ["../production"],
            "images": [
                {"name": name, "newName": f"docker.io/library/{images[ours]}", "newTag": "latest", "digest": ""}
                for name, ours in names.items()
            ],
            "patches": [{"target": {"kind": "Deployment"}, "patch": json.dumps(patches)}],
        }
        (folder := self._overlay.parent / "verify").mkdir(exist_ok=True)
        (folder / "kustomization.yaml").write_text(json.dumps(verify))
        return folder

    def apply(self, images: dict[str, str]) -> None:
        """Applies the whole overlay with these images."""
        self.kubectl("apply", "--server-side", "--validate=strict", "--kustomize", self.write_overlay(images))

    def replace(self, component: str, images: dict[str, str]) -> None:
        """Replaces the pods of one component by pods with these images."""
        rendered = self.kubectl("kustomize", self.write_overlay(images))
        name = f"ldpstream-{component}"
        [deployment] = [
            document
            for document in yaml.safe_load_all(rendered)
            if (document["kind"], document["metadata"]["name"]) == ("Deployment", name)
        ]
        self.kubectl("apply", "--server-side", "--validate=strict", "--filename=-", given=json.dumps(deployment))
        self.kubectl("rollout", "status", f"deployment/{name}", WITHIN)

    # ---- states

    def pods(self) -> list[dict[str, Any]]:
        """The pods that are not ending."""
        listed: list[dict[str, Any]] = json.loads(self.kubectl("get", "pods", "--output=json"))["items"]
        return [pod for pod in listed if "deletionTimestamp" not in pod["metadata"]]

    def places(self) -> dict[str, str]:
        """The node of each pod."""
        return {pod["metadata"]["name"]: pod["spec"].get("nodeName", "") for pod in self.pods()}

    def await_ready(self) -> None:
        """Waits until all deployments and stores have their pods, and all replicas of Kafka are in sync.

        Raises:
            VerifyError: if that takes too long.
        """
        for component in COMPONENTS:
            self.kubectl("rollout", "status", f"deployment/ldpstream-{component}", WITHIN)
        for name in (KAFKA, REDIS):
            self.kubectl("rollout", "status", f"statefulset/{name}", WITHIN)
        self._await("all replicas of Kafka in sync", self.stores.replicated)

    def _await(self, what: str, reached: Callable[[], bool]) -> None:
        last = ""

        def well() -> bool:
            nonlocal last
            try:
                return reached()
            except VerifyError:
                raise
            except Exception as error:  # clients raise errors of many kinds while a broker is away
                last = repr(error)
                return False

        wait_for(well, lambda: f"{what} {last} {self._cluster.states(NAMESPACE)}")

    # ---- devices

    def start_devices(self, survey: Survey, count: int) -> None:
        """Starts threads of devices that post reports of the survey."""
        host = f"ldpstream-gateway.{NAMESPACE}"
        self._devices[survey.name] = [Traffic(survey, host, self.stores.token, SEED + i) for i in range(count)]
        for devices in self._devices[survey.name]:
            devices.start()
        self.await_reports(survey.name)

    def await_reports(self, *names: str) -> None:
        """Waits until reports of the surveys are acknowledged from now on."""
        before = {name: self.acknowledged(name) for name in names}

        def more() -> bool:
            if errors := [one.error for name in names for one in self._devices[name] if one.error]:
                raise VerifyError(f"devices stopped: {errors}")
            return all(self.acknowledged(name) > before[name] for name in names)

        self._await(f"reports of {names} are acknowledged", more)

    def acknowledged(self, name: str) -> int:
        """Number of acknowledged reports of a survey."""
        return sum(one.acknowledged for one in self._devices[name])

    def stop_devices(self, name: str) -> None:
        """Ends the devices of a survey, whose last bodies must be acknowledged."""
        for one in self._devices[name]:
            one.finish()

    def check_refused(self, survey: Survey, step: int, status: int, reason: str) -> None:
        """Waits until the gateways refuse new reports of a step with this status and reason."""
        [*_, devices] = self._devices[survey.name]
        body, _ = devices.body(step)

        def refused() -> bool:
            answers = [devices.post(body, secrets.token_urlsafe(16)) for _ in range(2 * GATEWAYS)]
            return all(found == status and reason in text for found, text in answers)

        self._await(f"gateways refuse reports of {survey.name} with {status} {reason}", refused)

    def await_end(self, survey: Survey) -> None:
        """Waits until a survey has ended, and the gateways refuse reports of later steps for good."""
        [devices] = self._devices[survey.name]
        self._await(f"the end of survey {survey.name}", lambda: not devices.is_alive())
        self.check_refused(survey, ENDS, 422, "survey ended")

    def remove(self, survey: Survey, images: dict[str, str]) -> None:
        """Removes the file of a survey, and waits until the gateways no longer know the survey."""
        (self._surveys / f"{survey.name}.toml").unlink()
        self.apply(images)
        self.check_refused(survey, 0, 409, "wrong survey")

    def finish(self, name: str) -> str:
        """Ends the devices of a survey, and checks that all their reports are counted once. Returns a line about them."""
        self.stop_devices(name)
        return check_counted(self._devices[name], self.stores.settings("estimator"), lambda: self._cluster.states(NAMESPACE))

    def close(self) -> None:
        """Ends all devices, also after an error."""
        for devices in self._devices.values():
            for one in devices:
                one.stop()

    # ---- what happens while devices report

    def scale_agents(self) -> None:
        """Runs 1, 4 and 2 agents, as KEDA would."""
        for count in (4, 2):
            self.kubectl("scale", "deployment/ldpstream-agent", f"--replicas={count}")
            self.kubectl("rollout", "status", "deployment/ldpstream-agent", WITHIN)
            self.await_reports("demo")

    def kill_broker(self) -> str:
        """Kills the process of a broker. Returns the broker's name."""
        name = f"{KAFKA}-{self._random.randrange(3)}"
        number = name.rpartition("-")[2]
        command = f"kafka.Kafka\0/config/server-{number}.properties"
        found = [path.parent for path in Path("/proc").glob("[0-9]*/cmdline") if command in _read(path)]
        check(f"processes of {name}", len(found), 1)
        os.kill(int(found[0].name), signal.SIGKILL)
        self.await_reports("demo")
        self._await(f"{name} starts again", lambda: any(p["metadata"]["name"] == name and restarts(p) for p in self.pods()))
        self.await_ready()
        return name

    def drain(self) -> str:
        """Drains the node with more brokers, and then lets pods return to it. Returns a line about the pods.

        Raises:
            VerifyError: if two pods of one PodDisruptionBudget were evicted at the same time.
        """
        brokers = [node for name, node in self.places().items() if name.startswith(KAFKA)]
        node = max(NODES, key=brokers.count)
        moved = [name for name, where in self.places().items() if where == node]
        refused = self._cluster.drain(node)
        if not refused:  # it has two brokers, and their budget allows one eviction
            raise VerifyError(f"no budget refused the eviction of two brokers from {node} at the same time")
        self.await_ready()
        check("pods that are left on the drained node", [name for name, where in self.places().items() if where == node], [])
        self._cluster.kubectl("uncordon", node)
        self.await_reports("demo")
        evicted = f"{node} was drained of {len(moved)} pods, {brokers.count(node)} of them brokers"
        return f"{evicted}; the budgets refused {refused} evictions at first"

    def kill_control_plane(self) -> int:
        """Kills API server, etcd, controllers and scheduler, and starts them again. Returns the reports of the meantime."""
        self._cluster.kill_control_plane()
        before = self.acknowledged("demo")
        time.sleep(DOWN_S)
        meanwhile = self.acknowledged("demo") - before
        self._cluster.restart_control_plane()
        self.await_ready()
        if not meanwhile:
            raise VerifyError("no report was acknowledged without the control plane")
        return meanwhile

    def restart_pods(self) -> int:
        """Deletes every pod in random order, each when all pods are ready. Returns their number."""
        names = [pod["metadata"]["name"] for pod in self.pods()]
        self._random.shuffle(names)
        for name in names:
            self.kubectl("delete", "pod", name, "--wait", WITHIN)
            self.await_ready()
        self.await_reports("demo")
        return len(names)

    def upgrade(self, images: dict[str, str], order: tuple[str, ...]) -> None:
        """Replaces one component after the other by pods with these images."""
        for component in order:
            self.replace(component, images)
            self.await_reports("demo")
        names = {pod["spec"]["containers"][0]["image"] for pod in self.pods()} - {f"docker.io/library/{stores.IMAGE}:latest"}
        check("images of the pods", names, {f"docker.io/library/{image}:latest" for image in images.values()})


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:  # the process has ended
        return ""


def run_production(cluster: Cluster, work: Path, strimzi: Path) -> None:
    """Runs the trial.

    Raises:
        VerifyError: if something does not hold.
    """
    began = time.monotonic()

    def told(line: str) -> None:
        say(f"- {time.monotonic() - began:4.0f} s: {line}")

    earlier, now = EARLIER, {name: name for name in EARLIER}
    with ExitStack() as stack:
        site = Production(cluster, work, strimzi)
        stack.callback(site.close)
        demo = site.write_survey("demo")
        site.stores.start(demo)
        told("three brokers and Redis run, with TLS, the topics, users and rights of the manifests")
        site.apply(earlier)
        cluster.start_names(NAMESPACE)
        site.await_ready()
        site.start_devices(demo, 2)
        told("all pods of the earlier version are ready; a gateway acknowledged reports")
        told(check_policies(cluster))

        site.scale_agents()
        told("4 and then 2 agents")

        second = site.write_survey("second")
        site.stores.add(second)
        site.apply(earlier)
        site.start_devices(second, 1)
        told("a second survey was added through the ConfigMap; a gateway acknowledged its reports")

        told(f"{site.kill_broker()} was killed, and is in sync again")
        told(site.drain())
        told(
            f"control plane killed, and back after {DOWN_S:.0f} s; meanwhile {site.kill_control_plane():,} reports acknowledged"
        )

        site.stop_devices("second")
        third = site.write_survey("third", f'replaces = "{second.fingerprint.hex()}"\nends = {ENDS}\n')
        site.stores.add(third)
        site.apply(earlier)
        site.start_devices(third, 1)
        told("a third survey replaces the second one; a gateway acknowledged its reports")

        site.upgrade(now, COMPONENTS)
        told("upgrade: estimators, agents and gateways of this version")
        site.upgrade(earlier, COMPONENTS[::-1])
        told("rollback: all pods of the earlier version again")
        site.upgrade(now, COMPONENTS)
        told("second upgrade")
        told(site.finish("second"))
        site.remove(second, now)
        told("the second survey was removed; the gateways refuse it")

        told(f"{site.restart_pods()} pods were deleted in random order, each when all were ready")
        site.await_end(third)
        told(site.finish("third"))
        site.remove(third, now)
        told("the third survey has ended, and was removed")
        told(site.finish("demo"))
        restarted = {
            pod["metadata"]["name"]: n for pod in site.pods() if (n := restarts(pod)) and KAFKA not in pod["metadata"]["name"]
        }
        check("pods whose containers restarted", restarted, {})


def restarts(pod: dict[str, Any]) -> int:
    """How often the containers of a pod were restarted."""
    return sum(one["restartCount"] for one in pod["status"]["containerStatuses"])
