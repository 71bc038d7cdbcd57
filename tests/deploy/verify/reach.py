"""Tries connections between the pods of `production` and strangers; the NetworkPolicies must allow or deny each of them.

The connections are made in the network namespaces of real pods. The network plugin lets a node reach all of its pods, as
kubelets need.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.deploy.verify import names
from tests.deploy.verify.engine import WITHIN, run, wait_for
from tests.deploy.verify.node import SANDBOX, Cluster
from tests.deploy.verify.secure_stores import KAFKA, NAMESPACE, REDIS

OURS = ("agent", "estimator", "gateway")
OUTSIDE = ("ingress-nginx", "monitoring", "keda", "elsewhere")  # namespaces with one pod each
STRANGER = "stranger"  # name of these pods, and of a pod without our labels in our namespace
SOURCES = (*OURS, KAFKA, REDIS, STRANGER, *OUTSIDE)
OPEN = 8000  # port of a server in each of these pods
ALLOWED = {  # (pod, port): the pods that may connect; all others must be denied
    ("gateway", 8081): {"ingress-nginx"},
    ("estimator", 8080): {"ingress-nginx"},
    **{(name, 9100): {"monitoring"} for name in OURS},
    (KAFKA, 9093): {*OURS, KAFKA, "keda"},
    (KAFKA, 9094): {KAFKA},
    (REDIS, 6379): {"agent", "estimator"},
    (names.NAME, 53): {*OURS, KAFKA, *OUTSIDE},
    ("elsewhere", OPEN): {*OUTSIDE},
    (STRANGER, OPEN): set[str](),
}
PROBE = """
import json, socket, sys

def possible(host, port):
    try:
        socket.create_connection((host, port), timeout=20).close()
    except OSError:
        return False
    return True

print(json.dumps([possible(host, port) for host, port in json.loads(sys.argv[1])]))
"""


def strangers() -> Iterator[dict[str, Any]]:
    """The namespaces of strangers, and a pod with a server in each of them and in ours."""
    for namespace in OUTSIDE:
        yield {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
    for namespace in (*OUTSIDE, NAMESPACE):
        container = {
            "name": "server", "image": SANDBOX, "imagePullPolicy": "Never",
            "command": ["python3", "-m", "http.server", str(OPEN)],
            "readinessProbe": {"tcpSocket": {"port": OPEN}},
            "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        }  # fmt: skip
        own = {"runAsNonRoot": True, "runAsUser": 1000, "seccompProfile": {"type": "RuntimeDefault"}}
        spec = {
            "automountServiceAccountToken": False, "terminationGracePeriodSeconds": 1, "securityContext": own,
            "containers": [container],
        }  # fmt: skip
        metadata = {"namespace": namespace, "name": STRANGER}
        yield {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def check_policies(cluster: Cluster) -> str:
    """Waits until exactly the allowed connections are possible. Returns a line about them.

    Raises:
        VerifyError: if another connection is possible, or an allowed one is not.
    """
    given = json.dumps({"apiVersion": "v1", "kind": "List", "items": [*strangers()]})
    cluster.kubectl("apply", "--server-side", "--validate=strict", "--filename=-", given=given)
    for namespace in (*OUTSIDE, NAMESPACE):
        cluster.kubectl("--namespace", namespace, "wait", "--for=condition=Ready", WITHIN, f"pod/{STRANGER}")
    made: dict[tuple[str, str, int], bool] = {}

    def hold() -> bool:  # the plugin learns of new pods after they have started
        made.update(connections(pods(cluster)))
        return not differences(made)

    wait_for(hold, lambda: f"connections as in the NetworkPolicies; wrong: {differences(made)}")
    cluster.kubectl("--namespace", NAMESPACE, "delete", "pod", STRANGER)
    cluster.kubectl("delete", "namespace", *OUTSIDE)
    allowed = sum(made.values())
    return f"the NetworkPolicies hold: {allowed} connections are possible, {len(made) - allowed} are denied"


def name_of(pod: dict[str, Any]) -> str:
    """The name of a pod in `ALLOWED`."""
    metadata = pod["metadata"]
    labels, namespace = metadata.get("labels", {}), metadata["namespace"]
    if namespace != NAMESPACE:
        return names.NAME if namespace == names.NAMESPACE else str(namespace)
    if metadata["name"] == STRANGER:
        return STRANGER
    return str(labels.get("app.kubernetes.io/component") or metadata["name"].rpartition("-")[0])


def pods(cluster: Cluster) -> dict[str, list[str]]:
    """The addresses of the running pods, by name."""
    listed = json.loads(cluster.kubectl("get", "pods", "--all-namespaces", "--output=json"))["items"]
    found: dict[str, list[str]] = {}
    for pod in listed:
        if "deletionTimestamp" not in pod["metadata"] and pod["status"].get("phase") == "Running":
            found.setdefault(name_of(pod), []).append(pod["status"]["podIP"])
    return found


def connections(found: dict[str, list[str]]) -> dict[tuple[str, str, int], bool]:
    """The connections that are possible, by source, target and port.

    Connections begin at the last pod of a name and end at the first one. A pod always reaches itself; this is not tried.
    """
    spaces, made = network_namespaces(), dict[tuple[str, str, int], bool]()
    for source in SOURCES:
        own = found[source][-1]
        targets = [(name, port) for name, port in ALLOWED if found[name][0] != own]
        asked = json.dumps([(found[name][0], port) for name, port in targets])
        answers = json.loads(run(["nsenter", f"--net={spaces[own]}", sys.executable, "-c", PROBE, asked]))
        made.update({(source, *target): answer for target, answer in zip(targets, answers, strict=True)})
    return made


def differences(made: dict[tuple[str, str, int], bool]) -> list[str]:
    """The connections that are possible but not allowed, or the other way round."""
    return [
        f"{source} {'reaches' if possible else 'does not reach'} {target}:{port}"
        for (source, target, port), possible in made.items()
        if possible != (source in ALLOWED[target, port])
    ]


def network_namespaces() -> dict[str, Path]:
    """The network namespace of each pod, by the pod's address."""
    spaces = {}
    for file in Path("/run/netns").glob("cni-*"):
        for link in json.loads(run(["ip", "-netns", file.name, "-json", "-4", "address", "show", "scope", "global"])):
            spaces.update({one["local"]: file for one in link.get("addr_info", [])})
    return spaces
