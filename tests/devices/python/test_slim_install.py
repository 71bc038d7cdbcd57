"""The base install is all that a device needs: these tests check its modules, its packages and its reports.

One fixture builds the wheel and installs it beside the base install's packages alone. The wheel needs no network: its build
uses the setuptools of this environment, and the packages are links to this environment's files. Beside the wheel, the fixture
puts a foreign package with the name of each room, such as `agents`. A foreign package raises ImportError when it is imported.
"""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

from ldpstream.mechanisms import SETS
from ldpstream.mechanisms.registry import one_time, registered
from tests.ldpstream.rooms import FOLDERS, INSTALLED
from tests.small_survey import small_text

ROOT = Path(__file__).parents[3]
HEAVY = {"numpy", "scipy", "numba", "pydantic", "faust", "kafka", "aiokafka", "redis", "prometheus_client", "typer", "rich"}
SAMPLES = sorted((ROOT / "surveys" / "samples").glob("*.toml"))
EVERY = (*registered(), "auto")
FOREIGN = sorted(set(INSTALLED) - {"ldpstream"})  # agents, runtime, surveys and the other rooms
ONCE = {"name": "a", "mechanism": "GRR", "eps": 1.0}
ONE_QUESTION = small_text({"name": "answer", "size": 3, "level": [ONCE]}, window_steps=1)
PROGRAM = """
import json, sys, threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from ldpstream.device import Device, Sender, Wallet
from ldpstream.surveys import load_survey

imported = set(sys.modules)
from ldpstream.device.secure_random import SecureRandom

drawn = 0

def scripted(self, n):  # the same bytes in every process
    global drawn
    drawn += n
    return bytes((7 * i * i + 101) % 251 for i in range(drawn - n, drawn))

SecureRandom.bytes = scripted
survey = load_survey(sys.argv[1])
device = Device(survey, sys.argv[2], consent="simulated")
sent = [device.report(a.name, [3] if a.most else 3, step).hex() for step in range(9) for a in survey.attributes]
wallet = Wallet(sys.argv[2] + ".wallet", per_window=1e9, window_s=60)
sent.append(Device(survey, wallet, consent="simulated").report("GRR", 3, 10**9).hex())

class Gateway(BaseHTTPRequestHandler):
    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(202)
        self.end_headers()
        self.wfile.write(b'{"accepted": 1}')

    def log_message(self, *_):
        pass

server = HTTPServer(("127.0.0.1", 0), Gateway)
threading.Thread(target=server.serve_forever, daemon=True).start()
for i, path in enumerate(sys.argv[3:]):
    asked = Device(load_survey(path), f"{sys.argv[2]}.{i}", consent="simulated")
    made = asked.answer({a.name: a.labels[0] if a.values else 1 for a in asked.survey.attributes}, 3)
    outcome = Sender(asked, f"http://127.0.0.1:{server.server_port}").attempt()
    assert (outcome.accepted, outcome.waiting) == (len(made), 0), (path, outcome)
reported, once = set(sys.modules), device.spent("OUE").eps_sequence
memoized = {name: [device.spent(name).eps_t, device.spent(name).eps_sequence] for name in ("L-GRR", "L-OSUE", "L-SS")}
print(json.dumps({"imported": sorted(imported), "reported": sorted(reported), "after": sorted(sys.modules), "drawn": drawn,
                  "fingerprint": survey.fingerprint.hex(), "sent": sent, "once": once, "memoized": memoized,
                  "wallet": wallet.spent().spent}))
"""


@pytest.fixture(scope="module")
def survey(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A survey file with an attribute for every mechanism, and one for ``auto`` with a limit of the guess."""
    lines = ['name = "all"', "start = 2026-01-05T00:00:00Z", "step_seconds = 60", "window_steps = 1", "lateness_steps = 3"]
    lines.append('collection = "spl"')
    for name in EVERY:
        losses = "eps = 20.0" if name != "auto" and one_time(name) else "eps_inf = 50.0, eps_1 = 20.0"
        losses += ", guess_at_most = 0.99" if name == "auto" else ""
        domain = f"values = {[f'v{i}' for i in range(12)]}\nchoices = 3" if name in SETS else "size = 12"
        lines += ["[[attribute]]", f'name = "{name}"', domain]
        lines.append(f'level = [{{ name = "a", mechanism = "{name}", {losses} }}]')
    path = tmp_path_factory.mktemp("survey") / "all.toml"
    path.write_text("\n".join(lines))
    return path


def run(python: Path, survey: Path, folder: Path) -> dict[str, Any]:
    """Runs the program in a fresh interpreter, from an empty folder."""
    folder.mkdir()
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    command = [str(python), "-c", PROGRAM, str(survey), str(folder / "device"), *map(str, SAMPLES)]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.fixture(scope="module")
def everything(survey: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The program's output in this environment."""
    return run(Path(sys.executable), survey, tmp_path_factory.mktemp("full") / "run")


@pytest.fixture(scope="module")
def slim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the programs of a new environment with the wheel and the packages that the wheel requires."""
    home = tmp_path_factory.mktemp("slim")
    source, environment = home / "source", home / "environment"
    source.mkdir()
    for room in INSTALLED:
        inner, ignored = FOLDERS[room], shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / inner, source / inner, symlinks=True, ignore=ignored)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source / name)
    pip = [sys.executable, "-m", "pip"]
    build = [*pip, "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir", str(home), str(source)]
    subprocess.run(build, check=True, capture_output=True)
    venv.create(environment, symlinks=True)
    programs = environment / "bin"
    [wheel] = home.glob("*.whl")
    subprocess.run([*pip, "--python", programs / "python", "install", "--quiet", "--no-deps", "--no-index", wheel], check=True)
    [packages] = environment.glob("lib/*/site-packages")
    for name in FOREIGN:
        (packages / name).mkdir()
        (packages / name / "__init__.py").write_text(f"raise ImportError('foreign {name}')\n")
    [metadata] = packages.glob("ldpstream-*.dist-info/METADATA")
    required = [line.partition(": ")[2] for line in metadata.read_text().splitlines() if line.startswith("Requires-Dist")]
    waiting, linked = [Requirement(line).name for line in required if "extra ==" not in line], set[str]()
    while waiting:
        found = distribution(name := waiting.pop())
        linked.add(name)
        waiting += {Requirement(line).name for line in found.requires or () if "extra ==" not in line} - linked
        for part in {file.parts[0] for file in found.files or () if file.parts[0] != ".."}:
            (packages / part).symlink_to(str(found.locate_file(part)))
    assert linked == {"msgspec", "rfc8785"}
    return programs


def test_a_device_loads_no_heavy_package(everything: dict[str, Any]) -> None:
    assert not HEAVY.intersection(everything["imported"])
    assert not HEAVY.intersection(everything["reported"])
    assert "numpy" in everything["after"]  # control: the closest loss of nine reports of L-GRR needs NumPy


def test_the_base_install_makes_the_same_reports(slim: Path, survey: Path, everything: dict[str, Any], tmp_path: Path) -> None:
    found = run(slim / "python", survey, tmp_path / "run")
    assert len(found["sent"]) == 9 * len(EVERY) + 1
    assert len(set(found["sent"])) == len(found["sent"])
    for key in ("fingerprint", "sent", "drawn", "once", "wallet"):
        assert found[key] == everything[key], key
    for name, (unchanged, any_values) in found["memoized"].items():  # without NumPy, the bounds may be larger
        closest = everything["memoized"][name]
        assert closest[0] <= unchanged <= 50.0 / len(EVERY)
        assert closest[1] <= any_values


def test_a_command_without_its_packages_ends_with_one_line(slim: Path, tmp_path: Path) -> None:
    done = subprocess.run([slim / "ldpstream", "demo"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr == "ldpstream demo needs typer, which is not installed: in your checkout, pip install '.[service]'\n"


def test_names_of_a_notebook_that_need_no_service(slim: Path, tmp_path: Path) -> None:
    program = "from ldpstream import mechanism, load_survey; print(mechanism('THE', k=4, eps=1.0))"
    done = subprocess.run([slim / "python", "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stdout == "THE(k=4, eps=1.0)\n", done.stderr


def test_the_wheel_installs_one_name(slim: Path) -> None:
    [record] = slim.parent.glob("lib/*/site-packages/ldpstream-*.dist-info/RECORD")
    names = {line.partition("/")[0] for line in record.read_text().splitlines()}
    assert names == {"ldpstream", record.parent.name, ".."}  # ..: the programs in bin
    assert {"agents", "runtime", "engines", "surveys"} <= set(FOREIGN)


def test_the_demo_runs_beside_foreign_packages(slim: Path, tmp_path: Path) -> None:
    (survey := tmp_path / "one.toml").write_text(ONE_QUESTION)
    [packages] = slim.parent.glob("lib/*/site-packages")
    here = {"PYTHONPATH": f"{packages}{os.pathsep}{sysconfig.get_path('purelib')}", "NUMBA_DISABLE_JIT": "1"}

    def ended(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
        command = [slim / "python", "-P", *arguments]
        return subprocess.run(command, cwd=tmp_path, env=os.environ | here, capture_output=True, text=True, check=False)

    where = ended("-c", "import ldpstream.agents; print(ldpstream.agents.__file__)")
    assert where.stdout.strip() == str(packages / "ldpstream" / "agents" / "__init__.py"), where.stderr
    done = ended("-m", "ldpstream", "demo", "--survey", survey, "--users", "100", "--steps", "1", "--json", "demo.json")
    assert done.returncode == 0, done.stderr
    assert "100 reports counted in 1 step; rejected: 0." in done.stdout
    assert json.loads((tmp_path / "demo.json").read_text())["estimates"]
    control = ended("-c", "import agents")
    assert control.returncode == 1
    assert control.stderr.endswith("ImportError: foreign agents\n")
