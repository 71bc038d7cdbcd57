"""Applies the real manifests to a cluster of two nodes: `make verify-cluster`.

The server validates both overlays, and enforces Pod Security *restricted*. Then the overlay `production` runs under faults
(`tests.deploy.verify.production`). Its pods are upgraded from an earlier commit, by default the last one on `origin/main`. The
cluster runs in namespaces of its own, and needs root on Debian.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import yaml

from deploy.local.cache import cache_dir
from tests.deploy.manifests import ROOT
from tests.deploy.verify import stores
from tests.deploy.verify.engine import WITHIN, Engine, VerifyError, debian, engine, run
from tests.deploy.verify.image import FULL, GATEWAY, IMAGES, say, verification
from tests.deploy.verify.node import NODES, PACKAGES, SANDBOX, Cluster, groups, remove_groups
from tests.deploy.verify.production import EARLIER, run_production
from tests.deploy.verify.programs import KUBERNETES, definitions, kubernetes, plugin

MANIFESTS = ROOT / "deploy" / "kubernetes"
STRICT = ("apply", "--server-side", "--validate=strict")
PRIVILEGED = """
apiVersion: v1
kind: Pod
metadata: { name: privileged }
spec: { containers: [{ name: one, image: ldpstream, securityContext: { privileged: true } }] }
"""


def save_images(docker: Engine, archive: Path, earlier: str) -> None:
    """Writes an archive of our images and those of an earlier commit, the stand-in of the stores, and a pod's first image.

    Beside the archive, it keeps the earlier commit's manifests for Strimzi in a folder `strimzi`.

    Raises:
        VerifyError: if the commit does not exist, or a build fails.
    """
    say(f"Engine: {docker.describe()}\n- {docker.build(FULL)}")
    docker.build(GATEWAY, IMAGES[GATEWAY])
    with tempfile.TemporaryDirectory(dir=cache_dir()) as checkout:
        commit = run(["git", "-C", ROOT, "rev-parse", "--short", f"{earlier}^{{commit}}"]).strip()
        run(["git", "clone", "--quiet", "--shared", "--no-checkout", ROOT, checkout])
        run(["git", "-C", checkout, "checkout", "--quiet", "--detach", commit])
        for name, target in IMAGES.items():
            docker.build(EARLIER[name], target, Path(checkout))
        shutil.copytree(Path(checkout, "deploy/kubernetes/strimzi"), archive.parent / "strimzi")
    say(f"- the upgrade begins with the images of {commit}")
    stores.build(docker)
    pause = SANDBOX.removeprefix("docker.io/library/")
    with tempfile.TemporaryDirectory() as scratch:
        text = f'FROM {docker.stand_in()}\nUSER 65535:65535\nENTRYPOINT ["sleep", "infinity"]\n'
        docker.build_text(pause, text, Path(scratch))
    docker.docker("save", "--output", archive, *EARLIER, *EARLIER.values(), stores.IMAGE, pause)


def check_manifests(cluster: Cluster) -> None:
    """Validates both overlays on the server, with the operators' definitions, without creating anything but the namespaces.

    Raises:
        VerifyError: if the server refuses an object, or admits a privileged pod.
    """
    files = [f"--filename={file}" for file in definitions()]
    cluster.kubectl("apply", "--server-side", *files)
    names = cluster.kubectl("get", "crd", "--output", "name").split()
    cluster.kubectl("wait", "--for=condition=Established", WITHIN, *names)
    for overlay in ("dev", "production"):
        namespace = MANIFESTS / "overlays" / overlay / "namespace.yaml"
        cluster.kubectl(*STRICT, "--filename", namespace)
        rendered = cluster.kubectl("kustomize", MANIFESTS / "overlays" / overlay)
        objects = cluster.kubectl(*STRICT, "--dry-run=server", "--output=name", "--filename=-", given=rendered).split()
        say(f"- the server accepts all {len(objects)} objects of the overlay {overlay}")
        name = yaml.safe_load(namespace.read_text())["metadata"]["name"]
        try:
            cluster.kubectl("--namespace", name, "apply", "--dry-run=server", "--filename=-", given=PRIVILEGED)
        except VerifyError as error:
            if 'violates PodSecurity "restricted' not in str(error):
                raise
        else:
            raise VerifyError(f"the namespace {name} admits a privileged pod")
    cluster.kubectl(
        *STRICT, "--dry-run=server", "--namespace", name, "--filename", MANIFESTS / "overlays/production/http_route.yaml"
    )
    say("- both namespaces refuse a privileged pod; the server accepts the HTTPRoute of production")


def explain(cluster: Cluster) -> None:
    """Says the states and the last lines of the pods that are not ready."""
    pods: list[dict[str, Any]] = json.loads(cluster.kubectl("get", "pods", "--all-namespaces", "--output=json"))["items"]
    for pod in pods:
        ready = {c["type"]: c["status"] for c in pod["status"].get("conditions", [])}.get("Ready")
        if ready == "True" or pod["status"].get("phase") == "Succeeded":
            continue
        place, name = pod["metadata"]["namespace"], pod["metadata"]["name"]
        say(f"{place}/{name} is not ready: {[c.get('state') for c in pod['status'].get('containerStatuses', [])]}")
        for option in ("--previous=false", "--previous=true"):
            with suppress(VerifyError):
                say(cluster.kubectl("--namespace", place, "logs", name, "--tail=5", option))


def inside(archive: Path, work: Path) -> None:
    """Runs the cluster. Called in namespaces of its own.

    Raises:
        VerifyError: if something does not hold.
    """
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # the kernel's settings are restored
    cluster = Cluster(work)
    try:
        began = time.monotonic()
        cluster.start_control_plane()
        say(f"Kubernetes {KUBERNETES}: the control plane is ready after {time.monotonic() - began:.0f} s")
        check_manifests(cluster)
        cluster.start_nodes(archive)
        say(f"- {len(NODES)} nodes are ready after {time.monotonic() - began:.0f} s")
        say("The overlay production:")
        (folder := work / "production").mkdir()
        run_production(cluster, folder, archive.parent / "strimzi")
    except VerifyError:
        explain(cluster)
        raise
    finally:
        cluster.close()


def verify(earlier: str) -> None:
    """Saves the images, then runs the cluster in namespaces of its own.

    Args:
        earlier: the commit whose images are upgraded.

    Raises:
        VerifyError: if something does not hold.
    """
    if os.geteuid() != 0:
        raise VerifyError("the cluster needs root")
    if found := groups():
        raise VerifyError(f"a kubelet runs on this machine, or has left {found[0]}")
    debian(PACKAGES)  # before the cluster's network, which reaches no registry
    kubernetes()
    plugin()
    definitions()
    with tempfile.TemporaryDirectory(dir=cache_dir()) as scratch:
        archive = Path(scratch) / "images.tar"
        with engine() as docker:
            save_images(docker, archive, earlier)
        (work := Path(scratch) / "work").mkdir()
        own = ["unshare", "--net", "--pid", "--fork", "--kill-child", "--mount-proc"]
        command = [*own, sys.executable, "-P", "-m", "tests.deploy.verify.cluster", "inside", str(archive), str(work)]
        done = subprocess.run(command, check=False)
        remove_groups()
        if done.returncode:
            raise VerifyError("something does not hold in the cluster")


if __name__ == "__main__":
    if sys.argv[1:2] == ["inside"]:
        with verification("cluster"):
            inside(*map(Path, sys.argv[2:]))
    else:
        with verification("verify-cluster"):
            verify(*sys.argv[1:] or ["origin/main"])
