"""`python -m deploy.local` starts Kafka and Redis, and the commands that it prints make the whole service."""

import json
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from deploy.local.children import start_child
from deploy.local.commands import CommandNode
from deploy.local.ports import free_ports
from ldpstream.services.trial.ports import get
from tests.conftest import give_up

from .rig import PATIENCE_S, missing, wait_until

ROOT = Path(__file__).parents[2]


@pytest.fixture
def printed(kernels: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The output of the running command."""
    if reason := missing():
        give_up(reason)
    page, gateway = free_ports(2)
    monkeypatch.setenv("LDPSTREAM_PAGE_PORT", str(page))
    monkeypatch.setenv("LDPSTREAM_GATEWAY_PORT", str(gateway))
    output = tmp_path / "out"
    command = [sys.executable, "-m", "deploy.local", "--folder", str(tmp_path / "data")]
    with output.open("wb") as out:
        process = start_child(command, cwd=ROOT, stdout=out, stderr=out, start_new_session=True)
    yield output
    process.send_signal(signal.SIGINT)
    assert process.wait(PATIENCE_S) == 0
    assert output.read_text().endswith("Everything has ended.\n")


def test_the_printed_commands_make_the_whole_service(printed: Path, tmp_path: Path) -> None:
    def lines() -> list[str]:
        return re.findall(r"(?m)^    (?:export|ldpstream) .*$", printed.read_text())

    wait_until(lambda: len(lines()) == 6, printed.read_text)
    exports, rehearse, *commands = (shlex.split(line, comments=True) for line in lines())
    settings = dict(one.removeprefix("LDPSTREAM_").split("=", 1) for one in exports[1:])
    page = int(settings["PAGE_PORT"])
    subprocess.run([sys.executable, "-m", *rehearse], cwd=tmp_path, check=True)
    with ExitStack() as stack:
        for _, *arguments in commands:
            node = stack.enter_context(CommandNode(arguments, settings, tmp_path))
            if arguments[0] != "produce":
                node.wait_until_ready()

        def counted() -> bool:
            status = json.loads(get(page, "/api/v1/status?span=step") or b'{"attributes": []}')
            return any(one["reports"] for one in status["attributes"])

        wait_until(counted, printed.read_text)
