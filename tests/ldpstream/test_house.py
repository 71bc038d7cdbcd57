"""Checks the project's rules: the direction of imports, and paths and hosts of a machine in the source tree."""

import ast
import pkgutil
import re
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from ldpstream.mechanisms import Mechanism
from ldpstream.mechanisms.registry import FAMILIES

from .rooms import (
    FOLDERS,
    INSTALLED,
    MAY_IMPORT,
    NOT_INSTALLED,
    PAGE,
    PICTURE,
    ROOT,
    imports,
    module_of,
    picture,
    room_of,
    sources,
    tree_of,
)

PURE = [
    "mechanisms", "surveys", "promises", "agents/tally.py", "agents/fold.py", "agents/remembered_keys.py",
    "estimators", "publishing/estimates/publication.py", "publishing/estimates/conclusions.py",
]  # fmt: skip
GENERAL = {f"ldpstream.mechanisms.{name}" for name in ("base", "kinds", "channel")}
IMPURE = {"kafka", "aiokafka", "faust", "redis", "socket", "time", "random", "prometheus_client", "structlog"}


def reached(found: set[str], allowed: set[str]) -> set[str]:
    """Returns the names of our rooms that are imported although the rules forbid these imports."""
    return {name for name in found if (room := room_of(name)) is not None and room not in allowed}


@pytest.mark.parametrize(("package", "allowed"), MAY_IMPORT.items())
def test_imports_point_one_way(package: str, allowed: set[str]) -> None:
    for path in sources(package):
        wrong = reached(imports(path), allowed | {package})
        assert not wrong, f"{path.relative_to(ROOT)} imports {wrong}"


def test_the_table_of_rooms_is_the_one_tested() -> None:
    found: dict[str, str] = dict(re.findall(r"(?m)^\| `([\w/]+)/` \|.*\| (.*) \|$", PAGE.read_text(encoding="utf-8")))
    rooms: dict[str, str] = {folder: room for room, folder in FOLDERS.items()}
    rows = {rooms.get(folder, folder): allowed for folder, allowed in found.items()}
    assert list(rows) == [*MAY_IMPORT, "tests"]
    expected = {"mechanisms": "–", "tests": "all"} | dict.fromkeys(("ldpstream", *NOT_INSTALLED), "all above")
    for room, allowed in rows.items():
        assert allowed == expected.get(room) or set(allowed.split(", ")) == MAY_IMPORT[room]


def test_the_picture_of_rooms_shows_the_imports() -> None:
    """If this test fails, run `python -m tests.ldpstream.rooms`."""
    assert PICTURE.findall(PAGE.read_text(encoding="utf-8")) == [picture()]


# ---- circles of modules


def module_imports() -> dict[str, set[str]]:
    """Returns for each module of the installed rooms the modules that it imports, at the top or inside functions."""
    files = {module_of(path, room): path for room in INSTALLED for path in sources(room)}
    found = {name: imports(path) for name, path in files.items()}
    return {
        name: {of if of in files else of.rpartition(".")[0] for of in names} & files.keys() - {name}
        for name, names in found.items()
    }


def circles(arrows: dict[str, set[str]]) -> set[str]:
    """Returns the modules that import themselves through others."""
    left = {name: set(targets) for name, targets in arrows.items()}
    while ends := [name for name, targets in left.items() if not targets]:  # modules that import none of those left
        for name in ends:
            del left[name]
        for targets in left.values():
            targets.difference_update(ends)
    return {name for name in left if name in _reached(name, left)}


def _reached(start: str, arrows: dict[str, set[str]]) -> set[str]:
    found, todo = set[str](), list(arrows[start])
    while todo:
        if (name := todo.pop()) not in found:
            found.add(name)
            todo += arrows[name]
    return found


def test_no_modules_import_one_another_in_a_circle() -> None:
    assert not circles(module_imports())


def test_no_parts_of_a_room_import_one_another_in_a_circle() -> None:
    """A part is a folder within a room, such as `publishing/api`."""
    parts: dict[str, set[str]] = {}
    for name, targets in module_imports().items():
        own, others = _part_of(name), {_part_of(target) for target in targets}
        parts.setdefault(own, set()).update(others - {own, ""})
    assert not circles({part: targets for part, targets in parts.items() if part} | {"": set()})


def _part_of(module: str) -> str:
    """Returns the folder of a module within its room; empty for a module of the room itself."""
    path = Path(*module.split(".")[1:])
    folder = path if (ROOT / path).is_dir() else path.parent
    return str(folder) if len(folder.parts) > 1 else ""


def test_the_search_for_circles_finds_one() -> None:
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": set()}) == {"b", "c"}


# ---- names


def test_every_stop_of_the_reading_path_exists() -> None:
    walk = PAGE.read_text(encoding="utf-8").partition("## The path of one report")[2].partition("\n## ")[0]
    stops = re.findall(r"(?m)^\d+\. `([\w/.]+)`", walk)
    assert len(stops) >= 15
    assert all((ROOT / stop).is_file() for stop in stops)


def families() -> tuple[set[str], set[str]]:
    """The modules that define a mechanism, and the names of all classes of mechanisms."""
    modules, classes, found = set(), set(), [Mechanism]
    while found:
        kind = found.pop()
        if kind.__module__.startswith("ldpstream.mechanisms."):
            found += kind.__subclasses__()
            classes.add(kind.__name__)
            modules.add(kind.__module__)
    return modules - GENERAL, classes


def switches(tree: ast.AST, classes: set[str]) -> Iterator[str]:
    """Yields the calls of isinstance with a class of mechanisms."""
    for call in ast.walk(tree):
        if isinstance(call, ast.Call) and ast.unparse(call.func) == "isinstance":
            named = {name.id for name in ast.walk(call.args[1]) if isinstance(name, ast.Name)}
            if named & classes:
                yield ast.unparse(call)


def test_only_mechanisms_know_the_families() -> None:
    """Other code calls the mechanism's methods. The laboratory reproduces papers about particular mechanisms, and may name
    them."""
    modules, classes = families()
    wrong = set()
    for room in MAY_IMPORT.keys() - {"mechanisms", "lab"}:
        for path in sources(room):
            tree = tree_of(path)
            imported = {name.rpartition(".")[0] for name in imports(path)} | imports(path)
            if imported & modules or list(switches(tree, classes)):
                wrong.add(path.relative_to(ROOT).as_posix())
    assert not wrong


def test_the_test_of_families_detects_a_switch_and_knows_all_families() -> None:
    modules, classes = families()
    assert list(switches(ast.parse("isinstance(m.device, (int, SquareWave))"), classes))
    assert not list(switches(ast.parse("isinstance(m.k, int)"), classes))
    assert modules == {family.__module__ for family in FAMILIES}


def test_pure_parts_import_no_broker_clock_or_socket() -> None:
    for name in PURE:
        path = ROOT / name
        for file in path.rglob("*.py") if path.is_dir() else [path]:
            if file.parent != ROOT / "surveys" / "life":  # follows the files of the surveys
                assert not {found.partition(".")[0] for found in imports(file)} & IMPURE, file


def test_every_room_is_linked_into_the_installed_package() -> None:
    """The wheel owns the name `ldpstream` alone: every installed room is a package below it."""
    links = {path.name: path.resolve() for path in (ROOT / FOLDERS["ldpstream"]).iterdir() if path.is_symlink()}
    assert links == {room: ROOT / FOLDERS[room] for room in INSTALLED if room != "ldpstream"}
    assert all((path.parent / "__init__.py").exists() for room in INSTALLED for path in sources(room))


def test_a_room_is_imported_under_its_full_name() -> None:
    """Python would load a module a second time under its short name, for example with a second set of metrics."""
    rooms = set(INSTALLED) - {"ldpstream"}
    for folder in (*MAY_IMPORT, "tests", "docs"):
        for path in sources(folder):
            names = imports(path)
            assert not {name.partition(".")[0] for name in names} & rooms, path
            assert not any(name.startswith("devices.python") for name in names), path


def test_the_tree_names_no_machine() -> None:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=False)
    if listed.returncode:
        pytest.skip("not a git checkout")
    words = re.compile("|".join(["/wo" + "rk/", "registry" + r"\.npmjs", "files" + r"\.pythonhosted", "repo1?" + r"\.maven"]))
    for name in listed.stdout.decode().split("\0"):
        path = ROOT / name
        if name and path.is_file() and path.suffix in {".py", ".md", ".toml", ".sh", ".lock", ".yaml", ""}:
            assert not words.search(path.read_text(errors="replace")), name


# ---- engines and size

BROKERS = {"kafka", "aiokafka", "faust", "redis", "sqlite3"}
KNOW_BROKERS = {  # besides the engines and the front: the Faust app, the sink of simulated users, the export of estimates
    "agents": {"app.py", "counted_surveys.py", "consumer/"},
    "producers": {"kafka_sink.py"},
    "publishing": {"history/"},
    "gateway": set(),
}


def knows_a_broker(names: set[str]) -> bool:
    """Returns True if one of the names belongs to a client of a broker or a database, or to an engine that uses one."""
    engines = ("ldpstream.engines.kafka", "ldpstream.engines.folder")
    return any(name.partition(".")[0] in BROKERS or name.startswith(engines) for name in names)


@pytest.mark.parametrize("room", KNOW_BROKERS)
def test_what_a_room_does_is_apart_from_what_it_runs_on(room: str) -> None:
    """The control: the named files do import a broker or an engine."""
    names = {path.relative_to(ROOT / room).as_posix() for path in sources(room) if knows_a_broker(imports(path))}
    exempt = KNOW_BROKERS[room]
    assert {name for name in names if name not in exempt and f"{name.partition('/')[0]}/" not in exempt} == set()
    assert {one for one in exempt if not any(name.startswith(one) for name in names)} == set()


MOST_INSTALLED, MOST_TESTS, MOST_FILES = 24_500, 42_000, 12


def test_every_module_that_a_docstring_names_exists() -> None:
    names = rf"`(?:ldpstream\.)?((?:{'|'.join(room for room in INSTALLED if room != 'ldpstream')})\.[\w.]*\w)"
    for path in [path for room in FOLDERS for path in sources(room)]:
        for name in re.findall(names, path.read_text()):
            try:
                assert pkgutil.resolve_name(f"ldpstream.{name}") is not None
            except (AttributeError, ImportError) as error:
                raise AssertionError(f"{path} names `{name}`") from error


def code_lines(path: Path) -> int:
    """Returns the number of lines without docstrings, comments and blank lines."""
    stripped = [line.strip() for line in path.read_text(encoding="utf-8").split("\n")]
    lines = {number for number, line in enumerate(stripped, 1) if line and line[0] != "#"}
    nodes = list(ast.walk(tree_of(path)))
    for node in nodes:
        if isinstance(node, ast.JoinedStr | ast.Constant):  # blank lines within a text count
            lines |= set(range(node.lineno, (node.end_lineno or 0) + 1))
    for node in nodes:
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and ast.get_docstring(node):
            lines -= set(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    return len(lines)


def test_the_code_keeps_its_budget() -> None:
    """A commit that raises a number says for what. A new feature replaces an old one."""
    installed = [path for room in INSTALLED for path in sources(room)]
    assert sum(map(code_lines, installed)) <= MOST_INSTALLED
    assert sum(map(code_lines, sources("tests"))) <= MOST_TESTS
    folders = Counter(path.parent for path in installed if path.name != "__init__.py")
    assert max(folders.values()) <= MOST_FILES


def test_code_lines_leave_out_docstrings_comments_and_blank_lines(tmp_path: Path) -> None:
    (path := tmp_path / "a.py").write_text(
        '"""A.\n\nB."""\n\n# c\nx = [\n    1,  # d\n]\n\n\ndef f() -> str:\n    """F."""\n    return """a\nb"""\n'
    )
    assert code_lines(path) == 6
