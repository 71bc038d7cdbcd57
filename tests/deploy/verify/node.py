"""A whole Kubernetes cluster of two nodes: API server, controllers, scheduler, kubelets, kube-proxy, containerd and DNS.

It runs in namespaces of its own for network, processes and mounts (`unshare`), so that its ports, firewall rules and mounts end
with it. Debian's bridge connects the pods, and kube-router enforces the NetworkPolicies. Both nodes are on this machine. Each
node has its own kubelet, containerd, pods and pod network. The nodes share one address, one kube-proxy and one kube-router,
because they share the machine's firewall: kube-router enforces the policies of the pods at its own address.
"""

import json
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.deploy.verify import names
from tests.deploy.verify.engine import IPTABLES, WITHIN, VerifyError, debian, environment, last_line, run, wait_for
from tests.deploy.verify.programs import kubernetes, plugin

PACKAGES = (  # Debian's packages; kube-proxy needs iptables, kube-router iptables and ipset
    "containerd", "runc", "etcd-server", "containernetworking-plugins", "ipset", "libipset13", *IPTABLES,
)  # fmt: skip
NODES = ("verify-1", "verify-2")
NODE_IP = "10.99.0.1"  # address of an interface that only the cluster's network namespace has
CONTROL_PLANE = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")
API = "https://127.0.0.1:6443"
USERS = {  # user: group
    "admin": "system:masters",
    "system:kube-controller-manager": "",
    "system:kube-scheduler": "",
    "system:kube-proxy": "",
    "kube-router": "system:masters",
    **{f"system:node:{node}": "system:nodes" for node in NODES},
}
SANDBOX = "docker.io/library/ldpstream-verify-pause:latest"
CONTAINERD = """\
version = 2
root = "{folder}/containerd"
state = "{folder}/containerd-state"
[grpc]
  address = "{folder}/containerd.sock"
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
    conf_dir = "{folder}/cni"
"""
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
    "clusterDNS": [names.ADDRESS],
    "clusterDomain": "cluster.local",
    "enforceNodeAllocatable": [],
    "evictionHard": {"memory.available": "100Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
    "imageGCHighThresholdPercent": 100,  # a node of a half-full disk would remove images that it cannot pull again
    "seccompDefault": True,
    "syncFrequency": "10s",  # a changed ConfigMap reaches the pods sooner than with the default of 60 s
}
CHANGED = (
    "vm/overcommit_memory",
    "kernel/panic",
    "kernel/panic_on_oops",
    "kernel/keys/root_maxkeys",
    "kernel/keys/root_maxbytes",
)


class Cluster:
    """A cluster of two nodes. Everything that it started ends with its namespaces; `close` restores the kernel's settings."""

    def __init__(self, work: Path) -> None:
        self.work = work
        self._debian, self._kubernetes, self._plugin = debian(PACKAGES), kubernetes(), plugin()
        env = environment(self._debian, work)
        path = f"{self._kubernetes}:{self._plugin}:{env['PATH']}"
        self._env = env | {"PATH": path, "KUBECONFIG": self._login("admin")}
        self._kernel = {name: Path("/proc/sys", name).read_text() for name in CHANGED}
        self._started: dict[str, tuple[list[str], subprocess.Popen[bytes]]] = {}  # name: command and process

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

    def kill_control_plane(self) -> None:
        """Sends SIGKILL to etcd, the API server, the controllers and the scheduler."""
        for program in CONTROL_PLANE:
            self._kill(program)

    def restart_control_plane(self) -> None:
        """Starts the killed control plane again, with its data.

        Raises:
            VerifyError: if the API server is not ready in time.
        """
        for program in CONTROL_PLANE:
            self._start(*self._started[program][0])
        self.await_output("the API server", "ok", "get", "--raw", "/readyz")

    def start_nodes(self, images: Path) -> None:
        """Starts kube-proxy and kube-router, and on each node containerd with the images of an archive and the kubelet.

        Raises:
            VerifyError: if a node is not ready in time.
        """
        run(["ip", "link", "add", "verify0", "type", "bridge"])
        run(["ip", "address", "add", f"{NODE_IP}/24", "dev", "verify0"])
        run(["ip", "link", "set", "verify0", "up"])
        run(["ip", "route", "add", "default", "via", NODE_IP])
        Path("/proc/sys/net/ipv4/ip_forward").write_text("1")
        Path("/proc/sys/net/bridge/bridge-nf-call-iptables").write_text("1")  # policies hold between pods of one node, too
        (resolver := self.work / "resolv.conf").write_text(f"nameserver {names.ADDRESS}\n")
        lines = (f"nameserver {names.ADDRESS}", "search svc.cluster.local", "options ndots:5")
        (ours := self.work / "our-resolv.conf").write_text("\n".join(lines) + "\n")
        run(["mount", "--bind", ours, "/etc/resolv.conf"])  # this process uses the names of the services, too
        Path("/run/netns").mkdir(exist_ok=True)
        run(["mount", "-t", "tmpfs", "tmpfs", "/run/netns"])  # the networks of the pods end with the cluster, too
        with ThreadPoolExecutor() as pool:
            list(pool.map(lambda number: self._start_containers(number, images), range(len(NODES))))
        for number, node in enumerate(NODES):
            folder = self.work / node
            for group in _hierarchies():
                (group / node).mkdir(exist_ok=True)
            own = {
                "port": 10250 + 100 * number,
                "healthzPort": 10248 + 100 * number,
                "cgroupRoot": f"/{node}",
                "podLogsDir": f"{folder}/logs",
                "resolvConf": str(resolver),
                "containerRuntimeEndpoint": f"unix://{folder}/containerd.sock",
            }
            (folder / "kubelet.json").write_text(json.dumps(KUBELET | own))
            folders = [f"--root-dir={folder}/kubelet", f"--cert-dir={folder}/kubelet-certificates"]
            login = f"--kubeconfig={self._login(f'system:node:{node}')}"
            own_names = [f"--hostname-override={node}", f"--node-ip={NODE_IP}"]
            self._start("kubelet", f"--config={folder}/kubelet.json", login, *own_names, *folders, name=f"kubelet-{node}")
        login = f"--kubeconfig={self._login('system:kube-proxy')}"
        unchanged = [
            f"--conntrack-{name}=0" for name in ("max-per-core", "min", "tcp-timeout-established", "tcp-timeout-close-wait")
        ]
        self._start("kube-proxy", login, f"--hostname-override={NODES[0]}", "--cluster-cidr=10.244.0.0/16", *unchanged)
        ready = '{.status.conditions[?(@.type=="Ready")].status}'
        for node in NODES:
            self.await_output(f"the node {node}", "True", "get", "node", node, "--output", f"jsonpath={ready}")
        only = [
            "--run-router=false",
            "--run-service-proxy=false",
            "--run-firewall=true",
            "--service-cluster-ip-range=10.96.0.0/16",
        ]
        self._start("kube-router", f"--kubeconfig={self._login('kube-router')}", f"--hostname-override={NODES[0]}", *only)
        self._check_running()

    def _start_containers(self, number: int, images: Path) -> None:
        node = NODES[number]
        folder = self.work / node
        (folder / "cni").mkdir(parents=True)
        ranges = [[{"subnet": f"10.244.{number}.0/24"}]]
        addresses = {"type": "host-local", "ranges": ranges, "routes": [{"dst": "0.0.0.0/0"}], "dataDir": f"{folder}/addresses"}
        bridge = {"type": "bridge", "bridge": node, "isGateway": True, "hairpinMode": True, "ipam": addresses}
        network = {"cniVersion": "0.4.0", "name": node, "plugins": [bridge]}
        (folder / "cni" / "10-verify.conflist").write_text(json.dumps(network))
        plugins = self._debian / "usr" / "lib" / "cni"
        (folder / "containerd.toml").write_text(CONTAINERD.format(folder=folder, sandbox=SANDBOX, plugins=plugins))
        self._start("containerd", "--config", f"{folder}/containerd.toml", name=f"containerd-{node}")
        socket = folder / "containerd.sock"
        wait_for(socket.exists, lambda: f"{socket}; logs in {self.work}")
        run(["ctr", "--address", socket, "--namespace", "k8s.io", "images", "import", images], self._env)

    def drain(self, node: str) -> int:
        """Evicts all pods of a node. Returns how often a PodDisruptionBudget refused an eviction, which is then repeated.

        Raises:
            VerifyError: if that takes too long.
        """
        command = ["kubectl", "drain", node, "--ignore-daemonsets", "--delete-emptydir-data", WITHIN]
        done = subprocess.run(command, env=self._env, capture_output=True, text=True, check=False)
        if done.returncode:
            raise VerifyError(f"kubectl drain {node} failed: {' '.join(done.stderr.split())[-1500:]}")
        return done.stderr.count("violate the pod's disruption budget")

    def start_names(self, namespace: str) -> None:
        """Serves the names of the services of a namespace, which must exist already, in place of all earlier names."""
        services = json.loads(self.kubectl("--namespace", namespace, "get", "services", "--output", "json"))["items"]
        records = [f"{one['metadata']['name']}.{namespace}.svc.cluster.local,{one['spec']['clusterIP']}" for one in services]
        given = json.dumps({"apiVersion": "v1", "kind": "List", "items": names.objects(records)})
        self.kubectl("apply", "--server-side", "--validate=strict", "--filename=-", given=given)
        self.kubectl("--namespace", names.NAMESPACE, "rollout", "status", f"daemonset/{names.NAME}", WITHIN)
        self._check_running()

    def await_output(self, what: str, expected: str, *command: str) -> None:
        """Runs a command of kubectl until it prints what is expected.

        Raises:
            VerifyError: if that takes too long.
        """

        def found() -> str:
            try:
                return self.kubectl(*command)
            except VerifyError as error:
                return str(error)

        wait_for(lambda: found() == expected, lambda: f"{what} is ready: {found()}; logs in {self.work}")

    def states(self, namespace: str) -> str:
        """One line about the pods of a namespace: the state and the restarts of each container."""
        pods = json.loads(self.kubectl("--namespace", namespace, "get", "pods", "--output=json"))["items"]
        listed = {pod["metadata"]["name"]: pod["status"].get("containerStatuses", []) for pod in pods}
        return (
            f"(pods: {[(name, [(c['state'], c['restartCount']) for c in containers]) for name, containers in listed.items()]})"
        )

    def close(self) -> None:
        """Restores the settings of the kernel that the kubelet changes for the whole machine."""
        for name, value in self._kernel.items():
            Path("/proc/sys", name).write_text(value)

    def _start(self, program: str, *arguments: str, name: str | None = None) -> None:
        with (self.work / f"{name or program}.log").open("ab") as log:
            command = [program, *arguments]
            process = subprocess.Popen(command, env=self._env, cwd=self.work, stdout=log, stderr=log)
        self._started[name or program] = (command, process)

    def _check_running(self) -> None:
        """Raises VerifyError if a program has ended, with the last line of its log."""
        for name, (_, process) in self._started.items():
            if process.poll() is not None:
                raise VerifyError(f"{name} has ended: {last_line(self.work / f'{name}.log')}")

    def _kill(self, name: str) -> None:
        process = self._started[name][1]
        process.kill()
        process.wait()

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


def _hierarchies() -> list[Path]:
    """The roots of control groups: one for each controller with cgroup version 1, one for all with version 2."""
    root = Path("/sys/fs/cgroup")
    return [root] if (root / "cgroup.controllers").exists() else [path for path in root.iterdir() if path.is_dir()]


def groups() -> list[Path]:
    """The control groups of the nodes on this machine."""
    return [group / node for group in _hierarchies() for node in NODES if (group / node).exists()]


def remove_groups() -> None:
    """Removes the control groups of the nodes, once the cluster has ended."""
    for group in groups():
        for folder in sorted((path for path in group.rglob("*") if path.is_dir()), reverse=True):
            folder.rmdir()
        group.rmdir()
