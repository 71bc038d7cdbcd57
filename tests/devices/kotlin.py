"""The device in Kotlin, compiled once into a cache outside the tree:  python -m tests.devices.kotlin"""

import json
import os
import pwd
import shutil
import sys
import tempfile
from hashlib import sha256
from pathlib import Path

from deploy.local.cache import cache_dir
from tests.deploy.tools import ToolError, fetched, run
from tests.devices.ten_lines import ten_lines

DEVICES = Path(__file__).resolve().parents[2] / "devices"
BINDGEN = str(Path(sys.executable).parent / "uniffi-bindgen")
MAVEN = ["mvn", "--batch-mode", "--quiet", "test-compile", "dependency:copy-dependencies", "-DoutputDirectory=target/jars"]


def rust_environment() -> dict[str, str]:
    """Compiled packages stay in the cache. Rustup finds its toolchains also if `HOME` is not the user's home."""
    toolchains = Path(pwd.getpwuid(os.getuid()).pw_dir) / ".rustup"
    known = {"RUSTUP_HOME": str(toolchains)} if "RUSTUP_HOME" not in os.environ and toolchains.is_dir() else {}
    return {"CARGO_TARGET_DIR": str(cache_dir() / "rust"), "CARGO_INCREMENTAL": "0", **known}  # each test compiles once


def bindings(language: str, folder: Path) -> Path:
    """Compiles the library, writes its bindings for a language into a folder, and returns the library's folder.

    Raises:
        ToolError: if a tool is missing or fails.
    """
    if lacking := [tool for tool in ("cargo", BINDGEN) if shutil.which(tool) is None]:
        raise ToolError(f"no {' and no '.join(lacking)} on this machine")
    crate = DEVICES / "uniffi"
    run(["cargo", "build", "--locked", "--quiet", "--features", "seeded"], crate, **rust_environment())
    library = cache_dir() / "rust" / "debug" / "libldpstream_uniffi.so"
    command = [BINDGEN, "generate", "--library", str(library), "--language", language, "--no-format", "--out-dir", str(folder)]
    run(command, crate, **rust_environment())
    return library.parent


def java() -> list[str]:
    """Returns the command that runs a class of the device's tests and examples.

    Raises:
        ToolError: if a tool is missing or fails.
    """
    if lacking := [tool for tool in ("java", "mvn") if shutil.which(tool) is None]:
        raise ToolError(f"no {' and no '.join(lacking)} on this machine (deploy/local/setup_services.sh installs them)")
    with tempfile.TemporaryDirectory() as scratch:
        project = Path(scratch) / "kotlin"
        shutil.copytree(DEVICES / "kotlin", project, ignore=shutil.ignore_patterns("target"))
        (project / "src" / "test" / "kotlin" / "TenLines.kt").write_text(ten_lines("kotlin"))
        library = bindings("kotlin", project / "target" / "bindings")
        sources = b"".join(path.read_bytes() for path in sorted(project.rglob("*")) if path.suffix in {".kt", ".xml"})

        def install(made: Path) -> None:
            run(MAVEN, project)
            shutil.move(project / "target", made)

        made = fetched(f"kotlin-{sha256(sources).hexdigest()[:16]}", install)
    classes = f"{made / 'classes'}:{made / 'test-classes'}:{made / 'jars' / '*'}"
    return ["java", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", f"-Djna.library.path={library}", "-cp", classes]


def main() -> int:
    """Prints the command as JSON. On an error, prints the error to standard error and exits with status 1."""
    try:
        print(json.dumps(java()))
    except ToolError as error:
        print(f"kotlin: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
