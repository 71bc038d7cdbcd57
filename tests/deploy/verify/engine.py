"""A container engine for the targets `verify-…` of the Makefile, and the base image of our Dockerfile.

The machine's own engine is used if it answers. Otherwise root on Debian starts one. Its packages are unpacked into the cache,
not installed. Its images and containers are in the cache, too. It changes no firewall rule.
"""

import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from deploy.local.cache import cache_dir
from tests.deploy.manifests import ROOT
from tests.deploy.tools import fetched

DOCKERFILE = ROOT / "deploy" / "docker" / "Dockerfile"
IPTABLES = (  # Debian's packages; the engine needs them for the names of containers
    "iptables", "libip4tc2", "libip6tc2", "libmnl0", "libnetfilter-conntrack3", "libnfnetlink0", "libnftables1", "libnftnl11",
    "libxtables12",
)  # fmt: skip
PACKAGES = ("docker.io", "containerd", "runc", "tini", *IPTABLES)
STAND_IN = "ldpstream-verify-python"  # image that replaces the Dockerfile's base where it cannot be pulled
SUITE = "bookworm"  # Debian's release of the stand-in and of the base
IN_BASE = "python3,python3-venv,python-is-python3,ca-certificates"
CA_BUNDLE = Path("/etc/ssl/certs/ca-certificates.crt")  # the builds must trust what this machine trusts
LIMIT_S = 1200  # longest wait; only a fault takes so long, also on a busy machine
WITHIN = f"--timeout={LIMIT_S}s"  # the same limit for kubectl
COMMAND_S = 1800  # limit of one command; the first build downloads all packages


class VerifyError(RuntimeError):
    """Something did not hold, or a verification could not run. The message is one line for the user."""


def run(
    command: Sequence[str | Path], env: Mapping[str, str] | None = None, given: str | None = None, limit_s: int = COMMAND_S
) -> str:
    """Runs a command and returns its standard output.

    Raises:
        VerifyError: if the command cannot start, fails or takes longer than `limit_s`.
    """
    shown = " ".join(map(str, command[:6]))
    try:
        done = subprocess.run(command, env=env, input=given, capture_output=True, text=True, timeout=limit_s, check=False)
    except OSError as error:
        raise VerifyError(f"{shown} … cannot start: {error}") from error
    except subprocess.TimeoutExpired:
        raise VerifyError(f"{shown} … took longer than {limit_s} s") from None
    if done.returncode:
        raise VerifyError(f"{shown} … failed: {' '.join((done.stderr or done.stdout).split())[-1500:]}")
    return done.stdout


def wait_for(reached: Callable[[], object], what: Callable[[], object]) -> None:
    """Waits until `reached` returns true.

    Raises:
        VerifyError: after `LIMIT_S`, with what `what` then says.
    """
    end = time.monotonic() + LIMIT_S
    while not reached():
        if time.monotonic() > end:
            raise VerifyError(f"not within {LIMIT_S} s: {what()}")
        time.sleep(0.5)


class Engine:
    """A container engine that answers `docker`."""

    def __init__(self, program: str, env: Mapping[str, str]) -> None:
        self.program, self.env = program, dict(env)

    def docker(self, *arguments: str | Path, given: str | None = None) -> str:
        """Runs `docker …` and returns its output without the last line break.

        Raises:
            VerifyError: if the command fails.
        """
        return run([self.program, *arguments], self.env, given).strip()

    def describe(self) -> str:
        """Returns one line: version and whether the engine runs without root."""
        version, options = self.docker("info", "--format", "{{.ServerVersion}} {{.SecurityOptions}}").split(" ", 1)
        return f"Docker {version}, {'rootless' if 'rootless' in options else 'as root'}"

    def build(self, tag: str, target: str | None = None, root: Path = ROOT) -> str:
        """Builds a target of the real Dockerfile, and returns a sentence about its base image.

        Args:
            tag: name of the image.
            target: stage of the Dockerfile; the last one by default.
            root: folder of a checkout.

        Raises:
            VerifyError: if the build fails.
        """
        text = (root / DOCKERFILE.relative_to(ROOT)).read_text()
        found = re.search(r"(?m)^FROM (\S+@sha256:\S+)", text)
        assert found is not None
        base, note = found[1], f"base: {found[1]}"
        try:
            self.docker("pull", "--quiet", base)
        except VerifyError:
            text = text.replace(base, self.stand_in())
            note = (
                f"base: {base.partition('@')[0]} cannot be pulled here; replaced by Debian's Python 3.11 (mmdebstrap, {SUITE})"
            )
        commit = run(["git", "-C", root, "rev-parse", "--short=12", "HEAD"]).strip()
        options = ["--build-arg", f"COMMIT={commit}", *(["--target", target] if target else [])]
        self.docker("build", "--network", "host", "--quiet", "--tag", tag, *options, "--file", "-", root, given=text)
        return note

    def build_text(self, tag: str, text: str, folder: Path) -> None:
        """Builds an image from the text of a Dockerfile and a folder."""
        self.docker("build", "--network", "host", "--quiet", "--tag", tag, "--file", "-", folder, given=text)

    def has(self, image: str) -> bool:
        """True if the engine has the image."""
        return bool(self.docker("images", "--quiet", image))

    def stand_in(self) -> str:
        """Returns the name of a base image from Debian's packages. The first call takes two minutes."""
        if self.has(STAND_IN):
            return STAND_IN
        program = shutil.which("mmdebstrap") or debian(["mmdebstrap"]) / "usr" / "bin" / "mmdebstrap"
        with tempfile.TemporaryDirectory(dir=cache_dir()) as scratch:
            tar = Path(scratch) / "root.tar"
            run([program, "--variant=minbase", f"--include={IN_BASE}", SUITE, tar])
            self.docker("import", tar, f"{STAND_IN}:bare")
            tar.unlink()
            lines = [f"FROM {STAND_IN}:bare", "ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"]
            if CA_BUNDLE.exists():
                shutil.copy(CA_BUNDLE, scratch)
                lines += [f"COPY {CA_BUNDLE.name} {CA_BUNDLE}", f"ENV PIP_CERT={CA_BUNDLE}"]
            self.build_text(STAND_IN, "\n".join(lines) + "\n", Path(scratch))
        return STAND_IN


@contextmanager
def engine() -> Iterator[Engine]:
    """Yields the machine's engine, or one of our own, which ends with the context.

    Raises:
        VerifyError: if there is none and none can be started.
    """
    own = shutil.which("docker")
    if own is not None and subprocess.run([own, "info"], capture_output=True, check=False).returncode == 0:
        yield Engine(own, os.environ)
        return
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise VerifyError("no container engine answers: start Docker, or run this as root on Debian")
    with _started() as started:
        yield started


@contextmanager
def _started() -> Iterator[Engine]:
    """Starts an engine from Debian's packages, and ends it."""
    programs = debian(PACKAGES)
    work = cache_dir() / "verify-engine"
    work.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="ldpstream-engine-") as run_folder:
        address = f"unix://{run_folder}/docker.sock"
        env = environment(programs, Path(run_folder)) | {"DOCKER_HOST": address, "DOCKER_BUILDKIT": "0"}
        command = ["dockerd", "--host", address, "--data-root", str(work), "--exec-root", f"{run_folder}/exec"]
        command += ["--pidfile", f"{run_folder}/pid", "--bridge=none", "--iptables=false", "--ip6tables=false"]
        with (Path(run_folder) / "log").open("w+") as log, subprocess.Popen(command, env=env, stderr=log) as process:
            try:
                started = Engine(str(programs / "usr/bin/docker"), env)
                wait_for(lambda: _answers(started, process, log.name), lambda: last_line(log.name))
                yield started
            finally:
                process.terminate()
                process.wait(LIMIT_S)
                unmount(Path(run_folder))


def _answers(started: Engine, process: "subprocess.Popen[bytes]", log: str) -> bool:
    try:
        started.docker("info")
    except VerifyError:
        if process.poll() is not None:
            raise VerifyError(f"the container engine has ended: {last_line(log)}") from None
        return False
    return True


def last_line(log: str | Path) -> str:
    """Returns the last line of a log."""
    return " ".join(Path(log).read_text(errors="replace").splitlines()[-1:])


def unmount(folder: Path) -> None:
    """Unmounts what is mounted below a folder; an engine leaves a network namespace mounted."""
    points = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
    for point in sorted((point for point in points if Path(point).is_relative_to(folder)), reverse=True):
        run(["umount", point])


def environment(programs: Path, work: Path) -> dict[str, str]:
    """Returns the variables with which unpacked programs of Debian's packages run, iptables among them.

    Args:
        programs: folder of the unpacked packages.
        work: folder for the links that an installation of iptables would make.
    """
    (links := work / "bin").mkdir()
    for name in (f"{program}{end}" for program in ("iptables", "ip6tables") for end in ("", "-save", "-restore")):
        (links / name).symlink_to(programs / "usr" / "sbin" / "xtables-nft-multi")
    [libraries] = {path.parent for path in programs.glob("usr/lib/*/libxtables.so.*")}
    (links / "xtables").symlink_to(libraries / "xtables")  # iptables ignores paths of more than 255 bytes
    folders = [links, programs / "usr" / "sbin", programs / "usr" / "bin"]
    return os.environ | {
        "PATH": ":".join([*map(str, folders), os.environ["PATH"]]),
        "LD_LIBRARY_PATH": str(libraries),
        "XTABLES_LIBDIR": str(links / "xtables"),
    }


def debian(packages: Sequence[str]) -> Path:
    """Returns the folder of the cache with Debian's packages, unpacked but not installed.

    Raises:
        VerifyError: if apt-get cannot fetch them.
    """

    def install(folder: Path) -> None:
        folder.mkdir()
        with tempfile.TemporaryDirectory(dir="/var/tmp") as scratch:
            Path(scratch).chmod(0o755)
            fetch = subprocess.run(
                ["apt-get", "download", "-q", *packages], cwd=scratch, capture_output=True, text=True, check=False
            )
            if fetch.returncode:
                raise VerifyError(f"apt-get cannot fetch {' '.join(packages)} (apt-get update?): {fetch.stderr.strip()[-500:]}")
            for package in sorted(Path(scratch).glob("*.deb")):
                run(["dpkg", "-x", package, folder])

    return fetched("-".join(["debian", *packages]), install)
