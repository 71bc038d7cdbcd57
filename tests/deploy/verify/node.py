"""A whole Kubernetes cluster of one node: API server, controllers, scheduler, kubelet, kube-proxy, containerd and DNS.

It runs in namespaces of its own for network, processes and mounts (`unshare`), so that its ports, firewall rules and mounts end
with it. Its network plugin, Debian's bridge, does not enforce NetworkPolicies.
"""

import json
import os
import subprocess
import time
from pathlib import Path

from tests.deploy.verify.engine import VerifyError, debian, run
from tests.deploy.verify.programs import kubernetes

PACKAGES = ("containerd", "runc", "etcd-server", "containernetworking-plugins", "dnsmasq-base")  # Debian's packages
NODE = "verify"
NODE_IP = "10.99.0.1"  # address of an interface that only the cluster's network namespace has
API = "https://127.0.0.1:6443"
USERS = {  # user: group
    "admin": "system:masters",
    "system:kube-controller-manager": "",
    "system:kube-scheduler": "",
    "system:kube-proxy": "",
    f"system:node:{NODE}": "system:nodes",
}
READY_S = 1200  # only a fault reaches this limit, also on a busy machine
SANDBOX = "docker.io/library/ldpstream-verify-pause:latest"
CONTAINERD = """\
version = 2
root = "{work}/containerd"
state = "{work}/containerd-state"
[grpc]
  address = "{work}/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{sandbox}"
  restrict_oom_score_adj = true
  disable_hugetlb_controller = true
  tolerate_missing_hugetlb_controller = true
  stream_server_address = "127.0.0.1"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{plugins}"
    conf_dir = "{work}/cni"
"""
NETWORK = {
    "cniVersion": "0.4.0",
    "name": "verify",
    "plugins": [
        {
            "type": "bridge",
            "bridge": "verify1",
            "isGateway": True,
            "hairpinMode": True,
            "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.244.0.0/24"}]], "routes": [{"dst": "0.0.0.0/0"}]},
        }
    ],
}
KUBELET = {
    "apiVersion": "kubelet.config.k8s.io/v1beta1",
    "kind": "KubeletConfiguration",
    "cgroupDriver": "cgroupfs",
    "failSwapOn": False,
    "failCgroupV1": False,
    "oomScoreAdj": 0,
    "address": "127.0.0.1",
    "authentication": {"anonymous": {"enabled": False}, "webhook": {"enabled": False}},
    "authorization": {"mode": "AlwaysAllow"},
    "clusterDNS": [NODE_IP],
    "clusterDomain": "cluster.local",
    "enforceNodeAllocatable": [],
    "evictionHard": {"memory.available": "100Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
    "seccompDefault": True,
}
CHANGED = (
    "vm/overcommit_memory",
    "kernel/panic",
    "kernel/panic_on_oops",
    "kernel/keys/root_maxkeys",
    "kernel/keys/root_maxbytes",
)


class Cluster:
    """A cluster of one node. Everything that it started ends with its namespaces; `close` restores the kernel's settings."""

    def __init__(self, work: Path) -> None:
        self.work = work
        self._debian, self._kubernetes = debian(PACKAGES), kubernetes()
        folders = [self._kubernetes, *(self._debian / "usr" / name for name in ("sbin", "bin"))]
        self._env = os.environ | {
            "PATH": ":".join([*map(str, folders), os.environ["PATH"]]),
            "KUBECONFIG": self._login("admin"),
        }
        self._kernel = {name: Path("/proc/sys", name).read_text() for name in CHANGED}

    def kubectl(self, *arguments: str | Path, given: str | None = None) -> str:
        """Runs `kubectl …` as the administrator, and returns its output.

        Raises:
            VerifyError: if the command fails.
        """
        return run(["kubectl", *arguments], self._env, given)

    def start_control_plane(self) -> None:
        """Starts etcd, the API server, the controllers and the scheduler.

        Raises:
            VerifyError: if one of them does not start.
        """
        run(["ip", "link", "set", "lo", "up"])
        tokens = "".join(f'{name}-token,{name},{name},"{group}"\n' for name, group in USERS.items())
        (self.work / "tokens.csv").write_text(tokens)
        run(["openssl", "genrsa", "-out", self.work / "accounts.key", "2048"])
        self._start("etcd", "--data-dir", f"{self.work}/etcd", "--unsafe-no-fsync")
        keys = [f"--service-account-{name}={self.work}/accounts.key" for name in ("key-file", "signing-key-file")]
        addresses = ["--bind-address=127.0.0.1", "--advertise-address=127.0.0.1", "--service-cluster-ip-range=10.96.0.0/16"]
        files = [f"--cert-dir={self.work}/certificates", f"--token-auth-file={self.work}/tokens.csv", *keys]
        rights = ["--authorization-mode=Node,RBAC", "--service-account-issuer=https://kubernetes.default.svc"]
        self._start("kube-apiserver", "--etcd-servers=http://127.0.0.1:2379", *addresses, *files, *rights, "--allow-privileged")
        self.await_output("the API server", "ok", "get", "--raw", "/readyz")
        login, key = (
            self._login("system:kube-controller-manager"),
            f"--service-account-private-key-file={self.work}/accounts.key",
        )
        self._start("kube-controller-manager", f"--kubeconfig={login}", key, "--use-service-account-credentials")
        self._start("kube-scheduler", f"--kubeconfig={self._login('system:kube-scheduler')}")

    def start_node(self, images: Path) -> None:
        """Starts containerd with the images of an archive, the kubelet and kube-proxy.

        Raises:
            VerifyError: if the node is not ready in time.
        """
        run(["ip", "link", "add", "verify0", "type", "bridge"])
        run(["ip", "address", "add", f"{NODE_IP}/24", "dev", "verify0"])
        run(["ip", "link", "set", "verify0", "up"])
        run(["ip", "route", "add", "default", "via", NODE_IP])
        Path("/proc/sys/net/ipv4/ip_forward").write_text("1")
        (self.work / "cni").mkdir()
        (self.work / "cni" / "10-verify.conflist").write_text(json.dumps(NETWORK))
        plugins = self._debian / "usr" / "lib" / "cni"
        settings = CONTAINERD.format(work=self.work, sandbox=SANDBOX, plugins=plugins)
        (self.work / "containerd.toml").write_text(settings)
        self._start("containerd", "--config", f"{self.work}/containerd.toml")
        self._await_file(self.work / "containerd.sock")
        run(
            ["ctr", "--address", f"{self.work}/containerd.sock", "--namespace", "k8s.io", "images", "import", images], self._env
        )
        (self.work / "resolv.conf").write_text(f"nameserver {NODE_IP}\n")
        own = {"podLogsDir": f"{self.work}/logs", "resolvConf": f"{self.work}/resolv.conf"}
        own["containerRuntimeEndpoint"] = f"unix://{self.work}/containerd.sock"
        (self.work / "kubelet.json").write_text(json.dumps(KUBELET | own))
        folders = [f"--root-dir={self.work}/kubelet", f"--cert-dir={self.work}/kubelet-certificates"]
        login = f"--kubeconfig={self._login(f'system:node:{NODE}')}"
        names = [f"--hostname-override={NODE}", f"--node-ip={NODE_IP}"]
        self._start("kubelet", f"--config={self.work}/kubelet.json", login, *names, *folders)
        login = f"--kubeconfig={self._login('system:kube-proxy')}"
        unchanged = [
            f"--conntrack-{name}=0" for name in ("max-per-core", "min", "tcp-timeout-established", "tcp-timeout-close-wait")
        ]
        self._start("kube-proxy", login, f"--hostname-override={NODE}", "--cluster-cidr=10.244.0.0/16", *unchanged)
        ready = '{.status.conditions[?(@.type=="Ready")].status}'
        self.await_output("the node", "True", "get", "node", NODE, "--output", f"jsonpath={ready}")

    def start_names(self, namespace: str) -> None:
        """Serves the names of the services of a namespace, which must exist already."""
        services = json.loads(self.kubectl("--namespace", namespace, "get", "services", "--output", "json"))["items"]
        records = [f"{one['metadata']['name']}.{namespace}.svc.cluster.local,{one['spec']['clusterIP']}" for one in services]
        options = [
            "--keep-in-foreground",
            "--no-resolv",
            "--no-hosts",
            "--local=/cluster.local/",
            "--bind-interfaces",
            f"--listen-address={NODE_IP}",
        ]
        self._start("dnsmasq", *options, "--user=root", *(f"--host-record={record}" for record in records))

    def await_output(self, what: str, expected: str, *command: str) -> None:
        """Runs a command of kubectl until it prints what is expected.

        Raises:
            VerifyError: if that takes too long.
        """
        end, found = time.monotonic() + READY_S, ""
        while found != expected:
            if time.monotonic() > end:
                raise VerifyError(f"{what} was not ready after {READY_S} s: {found}; logs in {self.work}")
            time.sleep(0.5)
            try:
                found = self.kubectl(*command)
            except VerifyError as error:
                found = str(error)

    def close(self) -> None:
        """Restores the settings of the kernel that the kubelet changes for the whole machine."""
        for name, value in self._kernel.items():
            Path("/proc/sys", name).write_text(value)

    def _start(self, program: str, *arguments: str) -> None:
        with (self.work / f"{program}.log").open("wb") as log:
            subprocess.Popen([program, *arguments], env=self._env, cwd=self.work, stdout=log, stderr=log)

    def _login(self, user: str) -> str:
        """Writes a file with which a program logs in to the API server, and returns its path."""
        path = self.work / f"login-{user.replace(':', '-')}"
        cluster = {"server": API, "insecure-skip-tls-verify": True}
        named = {
            "clusters": [{"name": "verify", "cluster": cluster}],
            "users": [{"name": user, "user": {"token": f"{user}-token"}}],
        }
        context = {
            "contexts": [{"name": "verify", "context": {"cluster": "verify", "user": user}}],
            "current-context": "verify",
        }
        path.write_text(json.dumps({"apiVersion": "v1", "kind": "Config"} | named | context))
        return str(path)

    def _await_file(self, path: Path) -> None:
        end = time.monotonic() + READY_S
        while not path.exists():
            if time.monotonic() > end:
                raise VerifyError(f"no {path.name} after {READY_S} s; logs in {self.work}")
            time.sleep(0.2)


def groups() -> list[Path]:
    """The control groups of a kubelet on this machine, with cgroup version 1 and 2."""
    return [*Path("/sys/fs/cgroup").glob("*/kubepods"), *Path("/sys/fs/cgroup").glob("kubepods")]


def remove_groups() -> None:
    """Removes the control groups of the kubelet, once the cluster has ended."""
    for group in groups():
        for folder in sorted((path for path in group.rglob("*") if path.is_dir()), reverse=True):
            folder.rmdir()
        group.rmdir()
