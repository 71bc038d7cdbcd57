"""Builds both images with a container engine and runs them as the manifests do: `make verify-image`.

The report has sizes, start-up and stop times. The command fails if a process has a right too many, is not healthy, or ends
late.
"""

import json
import re
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from deploy.local.kafka_jars import JarsError
from tests.deploy.manifests import ROOT
from tests.deploy.verify.engine import LIMIT_S, Engine, VerifyError, engine, wait_for

IMAGES = {"ldpstream-verify": None, "ldpstream-gateway-verify": "gateway"}  # tag: target of the Dockerfile
FULL, GATEWAY = IMAGES
RIGHTS = ("--read-only", "--tmpfs", "/tmp", "--cap-drop", "ALL", "--security-opt", "no-new-privileges")
SURVEY = "/survey/demo.toml"
PACKAGES = "/opt/ldpstream/lib/python3.11/site-packages"
GRACE_S = 15  # the least grace in compose.yaml and in the manifests
LARGEST = 8  # packages named in the report
LINES = 40  # lines of a container's log that an error shows
# Waits in the container until a path answers 200, at most for the seconds given, and prints the time.
WAIT = """
import sys, time, urllib.request, urllib.error
end = time.time() + float(sys.argv[2])
while True:
    try:
        urllib.request.urlopen("http://127.0.0.1:9100" + sys.argv[1], timeout=2)
        break
    except OSError:
        if time.time() > end: sys.exit(1)
        time.sleep(0.05)
print(time.time())
"""
# Prints the rights of process 1, and tells if the root file system refuses a file.
STATUS = """
import json
status = dict(line.split(":", 1) for line in open("/proc/1/status"))
found = {name: status[name].split() for name in ("Uid", "Gid", "CapPrm", "CapEff", "CapBnd", "NoNewPrivs")}
try: open("/opt/written", "w")
except OSError as error: found["write"] = type(error).__name__ + " " + str(error.errno)
print(json.dumps(found))
"""
UNPRIVILEGED = {
    "Uid": ["10001"] * 4, "Gid": ["10001"] * 4, "CapPrm": ["0" * 16], "CapEff": ["0" * 16], "CapBnd": ["0" * 16],
    "NoNewPrivs": ["1"], "write": "OSError 30",
}  # fmt: skip


@dataclass(frozen=True)
class Process:
    """A command that runs until it is stopped. Without a network, some commands wait for Kafka."""

    image: str
    arguments: tuple[str, ...]
    health: bool = True  # the command has /health
    ready: bool = False  # the command is ready without Kafka

    def __str__(self) -> str:
        return f"{self.arguments[0]} ({'gateway image' if self.image == GATEWAY else 'full image'})"


PROCESSES = (
    Process(FULL, ("serve", SURVEY, "--data", "/data"), ready=True),
    Process(FULL, ("agent", SURVEY)),
    Process(FULL, ("estimate", SURVEY)),
    Process(FULL, ("gateway", SURVEY)),
    Process(GATEWAY, ("gateway", SURVEY)),
    Process(FULL, ("demo",), health=False),
)


def say(line: str) -> None:
    print(line, flush=True)


@contextmanager
def verification(name: str) -> Iterator[None]:
    """Says whether all holds. Exits with 1 and one line if something does not hold."""
    began = time.monotonic()
    try:
        yield
    except (VerifyError, JarsError) as error:
        sys.exit(f"{name}: {error}")
    say(f"{name}: all holds, after {time.monotonic() - began:.0f} s")


@contextmanager
def running(docker: Engine, process: Process) -> Iterator[str]:
    """Yields a container that runs the process without a network, and removes the container."""
    name = f"ldpstream-verify-{uuid.uuid4().hex[:8]}"
    volumes = ["--volume", f"{ROOT / 'surveys' / 'samples'}:/survey:ro", "--volume", "/data"]
    try:
        docker.docker(
            "run", "--detach", "--name", name, "--network", "none", *RIGHTS, *volumes, process.image, *process.arguments
        )
        yield name
    finally:
        docker.docker("rm", "--force", "--volumes", name)


def check_process(docker: Engine, process: Process) -> None:
    """Checks rights, health and the end of a process, and says its times.

    Raises:
        VerifyError: if one of them is wrong.
    """
    with running(docker, process) as name:
        began = time.time()
        times = []
        for path in ["/health"] * process.health + ["/ready"] * process.ready:
            answered = float(docker.docker("exec", name, "python", "-c", WAIT, path, str(LIMIT_S)))
            times.append(f"{path} after {answered - began:.1f} s")
        check(f"rights of {process}", json.loads(docker.docker("exec", name, "python", "-c", STATUS)), UNPRIVILEGED)
        await_healthy(docker, process, name)
        began = time.monotonic()
        docker.docker("stop", "--time", str(GRACE_S), name)
        took = time.monotonic() - began
        status = docker.docker("inspect", "--format", "{{.State.ExitCode}}", name)
        if status not in {"0", "143"} or took >= GRACE_S:
            ended = f"{process} ended with status {status}, {took:.1f} s after SIGTERM (at most {GRACE_S} s)"
            raise VerifyError(f"{ended}: {last_lines(docker, name)}")
        say(f"- {process}: {', '.join([*times, 'healthy', f'ended {took:.1f} s after SIGTERM'])}")


def await_healthy(docker: Engine, process: Process, name: str) -> None:
    """Waits for the HEALTHCHECK of the image.

    Raises:
        VerifyError: if it fails, or the process ends.
    """

    def state() -> str:
        return docker.docker("inspect", "--format", "{{.State.Status}} {{.State.Health.Status}}", name)

    def healthy() -> bool:
        if (now := state()).startswith("exited"):
            raise VerifyError(f"{process} is {now}: {last_lines(docker, name)}")
        return now == "running healthy"

    wait_for(healthy, lambda: f"{process} is {state()}, not healthy: {last_lines(docker, name)}")


def last_lines(docker: Engine, name: str) -> str:
    """Returns the last lines of a container's output and errors."""
    done = subprocess.run(
        [docker.program, "logs", "--tail", str(LINES), name], env=docker.env, capture_output=True, text=True, check=False
    )
    return f"{done.stdout}{done.stderr}"


def check(what: str, found: object, expected: object) -> None:
    """Raises `VerifyError` if the two differ."""
    if found != expected:
        raise VerifyError(f"{what}: {found}, expected {expected}")


def check_commands(docker: Engine) -> None:
    """Checks that every command of the full image shows its help, and that the gateway's image names a missing package."""
    list_commands = "from ldpstream.commands.cli import app; import typer; print(*typer.main.get_command(app).commands)"
    image = ("--rm", "--network", "none", *RIGHTS)
    commands = docker.docker("run", *image, "--entrypoint", "python", FULL, "-c", list_commands).split()
    show = 'for command in "$@"; do ldpstream "$command" --help >/dev/null || exit 1; done'
    docker.docker("run", *image, "--entrypoint", "sh", FULL, "-c", show, "sh", *commands)
    done = subprocess.run(
        [docker.program, "run", *image, GATEWAY, "demo"], env=docker.env, capture_output=True, text=True, check=False
    )
    line = re.compile(r"ldpstream demo needs \w+, which is not installed: in your checkout, pip install '\.\[service\]'\n")
    if done.returncode != 2 or not line.fullmatch(done.stderr):
        raise VerifyError(f"demo in the gateway's image: status {done.returncode}, {done.stderr[-300:]!r}; expected one line")
    say(f"- {len(commands)} commands show their help in the full image; the gateway's image names a missing package")


def sizes(docker: Engine, image: str) -> str:
    """One line: the size of the image, what we add to the base, and the largest packages."""
    whole = int(docker.docker("inspect", "--format", "{{.Size}}", image)) / 1e6
    shell = ("run", "--rm", "--network", "none", "--entrypoint", "sh", image, "-c")
    du = "du --summarize --apparent-size --block-size=1MB"
    listing = docker.docker(*shell, f"{du} /opt/ldpstream; {du} {PACKAGES}/*")
    (_, ours), *found = ((path.rpartition("/")[2], int(size)) for size, path in map(str.split, listing.splitlines()))
    largest = ", ".join(f"{name} {size}" for name, size in sorted(found, key=lambda entry: -entry[1])[:LARGEST])
    return f"{whole:.0f} MB; without the base {ours} MB; largest packages in MB: {largest}"


def verify(docker: Engine) -> None:
    say(f"Engine: {docker.describe()}")
    for image, target in IMAGES.items():
        began = time.monotonic()
        note = docker.build(image, target)
        say(f"{image}: built in {time.monotonic() - began:.0f} s; {note}\n- {sizes(docker, image)}")
    say("Processes, each with a read-only root, no capability, user 10001, no network:")
    for process in PROCESSES:
        check_process(docker, process)
    check_commands(docker)


if __name__ == "__main__":
    with verification("verify-image"), engine() as docker:
        verify(docker)
