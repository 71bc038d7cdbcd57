"""The cluster's DNS servers: Debian's dnsmasq on each node, with the labels by which NetworkPolicies know a cluster's DNS."""

from collections.abc import Sequence
from typing import Any

from tests.deploy.verify import stores

NAMESPACE, NAME = "kube-system", "kube-dns"
ADDRESS = "10.96.0.10"  # of the Service
LABELS = {"k8s-app": "kube-dns"}
OPTIONS = ("--keep-in-foreground", "--user=root", "--pid-file=", "--no-resolv", "--no-hosts", "--local=/cluster.local/")


def objects(records: Sequence[str]) -> list[dict[str, Any]]:
    """Returns the Service and the DaemonSet that answer with these records of the form `NAME,ADDRESS`."""
    container = {
        "name": "names", "image": f"docker.io/library/{stores.IMAGE}:latest", "imagePullPolicy": "Never",
        "command": ["dnsmasq", *OPTIONS, *(f"--host-record={record}" for record in records)],
        "readinessProbe": {"tcpSocket": {"port": 53}, "periodSeconds": 2},
    }  # fmt: skip
    pod = {"automountServiceAccountToken": False, "enableServiceLinks": False, "containers": [container]}
    ports = [{"name": protocol.lower(), "port": 53, "protocol": protocol} for protocol in ("UDP", "TCP")]
    metadata = {"namespace": NAMESPACE, "name": NAME}
    template = {"metadata": {"labels": LABELS}, "spec": pod}
    return [
        {
            "apiVersion": "v1", "kind": "Service", "metadata": metadata,
            "spec": {"clusterIP": ADDRESS, "selector": LABELS, "ports": ports},
        },
        {
            "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": metadata,
            "spec": {"selector": {"matchLabels": LABELS}, "template": template},
        },
    ]  # fmt: skip
