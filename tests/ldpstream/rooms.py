"""The rooms (our top-level folders), and the imports between rooms.

python -m tests.ldpstream.rooms      redraws the picture in CONTRIBUTING.md from the imports
"""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "CONTRIBUTING.md"
PICTURE = re.compile(r"```mermaid\n.*?```\n", re.DOTALL)
MAY_IMPORT: dict[str, set[str]] = {  # for each room, the earlier rooms that it may import
    "mechanisms": set(),
    "surveys": {"mechanisms"},
    "estimators": {"mechanisms"},
    "promises": {"mechanisms", "surveys"},
    "runtime": {"surveys"},
    "device": {"mechanisms", "surveys"},
    "engines": {"mechanisms", "surveys", "runtime"},
    "gateway": {"mechanisms", "surveys", "promises", "runtime", "device", "engines"},
    "producers": {"mechanisms", "surveys", "runtime", "device", "engines", "gateway"},
    "agents": {"mechanisms", "surveys", "runtime", "engines"},
    "publishing": {"mechanisms", "surveys", "estimators", "promises", "runtime", "engines"},
}
MAY_IMPORT["ldpstream"] = set(MAY_IMPORT)
MAY_IMPORT["deploy"] = set(MAY_IMPORT)
MAY_IMPORT["lab"] = set(MAY_IMPORT)
MAY_IMPORT["devices"] = set(MAY_IMPORT)
NOT_INSTALLED = ("deploy", "lab", "devices")  # rooms that a checkout imports under their short names
INSTALLED = [room for room in MAY_IMPORT if room not in NOT_INSTALLED]
FOLDERS = {room: room for room in MAY_IMPORT} | {"device": "devices/python", "ldpstream": "src/ldpstream"}


@cache
def sources(room: str) -> list[Path]:
    """Returns the Python files of a room, or of another folder of ours.

    Leaves out a room inside the folder, and installed packages of other languages.
    """
    folder = ROOT / FOLDERS.get(room, room)
    others = [ROOT / other for other in FOLDERS.values() if folder in (ROOT / other).parents]
    found = (path for path in folder.rglob("*.py") if "node_modules" not in path.parts)
    return [path for path in found if not any(path.is_relative_to(other) for other in others)]


def lists(source: str, names: set[str]) -> Iterator[int]:
    """Yields the lines of displays (tuple, list, set, dictionary) that hold two or more of the names."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Tuple | ast.List | ast.Set | ast.Dict):
            held = [*node.keys, *node.values] if isinstance(node, ast.Dict) else node.elts
            found = {one.value for one in held if isinstance(one, ast.Constant) and isinstance(one.value, str)}
            if len(found & names) >= 2:
                yield node.lineno


def module_of(path: Path, room: str) -> str:
    """Returns the name under which a module of an installed room is imported."""
    inner = path.relative_to(ROOT / FOLDERS[room]).with_suffix("").parts
    return ".".join(["ldpstream", *([] if room == "ldpstream" else [room]), *inner]).removesuffix(".__init__")


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def imports(path: Path) -> set[str]:
    """Returns the full names of what a file imports, at the top or inside functions: modules and names of modules."""
    found: set[str] = set()
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def room_of(name: str) -> str | None:
    """Returns the room of an imported name, such as `agents` for `ldpstream.agents.tally`; None for other packages."""
    first, _, rest = name.partition(".")
    room = rest.partition(".")[0]
    if first == "ldpstream" and room in INSTALLED:
        return room
    return first if first in ("ldpstream", *NOT_INSTALLED, "tests") else None


def rooms_imported_by(room: str) -> set[str]:
    """Returns the rooms that the files of a room import, without the room itself."""
    names = {name for path in sources(room) for name in imports(path)}
    return {found for name in names if (found := room_of(name)) is not None} - {room}


def picture() -> str:
    """Returns the Mermaid drawing. Arrows point to the imported room. Omits an arrow that two other arrows imply."""
    arrows = {room: rooms_imported_by(room) for room in MAY_IMPORT}
    lines = ["```mermaid", "graph TD"]
    for room, targets in arrows.items():
        direct = targets - {further for target in targets for further in _reachable(target, arrows)}
        lines += [f"    {room} --> {target}" for target in sorted(direct)]
        inner = (path.parent for path in (ROOT / FOLDERS[room]).glob("*/__init__.py") if not path.parent.is_symlink())
        parts = sorted(path.name for path in inner if path.relative_to(ROOT).as_posix() not in FOLDERS.values())
        if parts:
            lines.append(f'    {room}["{room}<br/><small>{", ".join(parts)}</small>"]')
    return "\n".join([*lines, "```", ""])


def _reachable(room: str, arrows: dict[str, set[str]]) -> set[str]:
    return arrows[room] | {further for target in arrows[room] for further in _reachable(target, arrows)}


def main() -> None:
    PAGE.write_text(PICTURE.sub(picture(), PAGE.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
