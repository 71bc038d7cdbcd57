"""`python -m deploy.local` tells in one line what a machine lacks. `tests/services/test_local.py` runs it."""

from pathlib import Path

import pytest

from deploy.local import servers
from deploy.local.__main__ import app
from deploy.local.kafka_jars import jars_dir
from ldpstream.commands.cli import run
from tests.ldpstream.test_mistakes import same_process as same_process  # a fixture


@pytest.mark.parametrize(
    ("programs", "cache", "told"),
    [
        ("redis-server", "empty", ["no java in JAVA_HOME or on PATH: install Java 17 or later"]),
        ("java redis-server", "empty", ["no jars of Kafka in", "install maven"]),
        ("java mvn", "empty", ["no redis-server on PATH: install redis-server"]),
        ("java mvn redis-server", "empty", ["Maven could not fetch the jars", "(exit code 0)"]),
        ("java redis-server", "full", ["survey.toml/kafka: Not a directory"]),
        (
            "java redis-server",
            "~nobody-of-this-name/x",
            ["LDPSTREAM_CACHE: ", "unknown; give another folder in place of"],
        ),
    ],
)
def test_a_machine_that_lacks_something_is_told_what(
    programs: str, cache: str, told: list[str],
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """`java` claims to be release 17; `mvn` does nothing."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr(servers, "_java_release", lambda command: 17)
    (tmp_path / "full" / jars_dir().name).mkdir(parents=True)
    for name in programs.split():
        program = tmp_path / "bin" / name
        program.parent.mkdir(exist_ok=True)
        program.write_text("#!/bin/sh\n")
        program.chmod(0o755)
    Path("survey.toml").touch()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("LDPSTREAM_CACHE", cache)
    monkeypatch.setattr("sys.argv", ["local", *(["--folder", "survey.toml"] if cache == "full" else [])])
    with pytest.raises(SystemExit) as ended:
        run(app)
    (line,) = capfd.readouterr().err.splitlines()
    assert ended.value.code == 2
    assert line.startswith("ldpstream: ")
    assert all(words in line for words in told), line
