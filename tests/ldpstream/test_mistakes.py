"""Mistakes of users, and what each user is told: exit status 2, and one line that names the object and what is allowed."""

import logging
import os
import re
import signal
import socket
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from ldpstream.commands.cli import run
from ldpstream.commands.trial import ENDING
from ldpstream.services.trial.ports import LOOPBACK

ROOT = Path(__file__).parents[2]
DEMO = (ROOT / "surveys" / "samples" / "demo.toml").read_text()
SECRET = "8x7secret"


@dataclass(frozen=True)
class Mistake:
    """A command line, its files and settings, and words of the message.

    Attributes:
        command: the arguments.
        told: words of the message, in this order.
        survey: what `survey.toml` has in place of the demo's text, as (old, new).
        data: the contents of `data.csv`.
        settings: variables without the prefix ``LDPSTREAM_``.
    """

    command: str
    told: tuple[str, ...]
    survey: tuple[str, str] = ("", "")
    data: bytes = b""
    settings: dict[str, str] = field(default_factory=dict)


def survey(old: str, new: str, *told: str) -> Mistake:
    return Mistake("check survey.toml", ("survey.toml: ", *told), survey=(old, new))


def data(content: str, *told: str, command: str = "demo --survey survey.toml --data data.csv") -> Mistake:
    return Mistake(command, ("data.csv", *told), data=content.encode())


def setting(name: str, value: str, *told: str, command: str = "gateway survey.toml") -> Mistake:
    return Mistake(command, (f"LDPSTREAM_{name}: ", *told), settings={name: value})


MISTAKES = {
    # the survey file
    "no survey": Mistake("check nowhere.toml", ("nowhere.toml: ", "No such file")),
    "a folder": Mistake("ledger .", (".: ", "Is a directory")),
    "text without quotes": survey('"smp"', "smp", "not TOML", "line 7"),
    "misspelt table": survey("[[attribute]]", "[[atribute]]", "atribute: unknown key; did you mean attribute?"),
    **{
        f"wrong survey for {command}": Mistake(
            f"{command} survey.toml", ("survey.toml: ", "attribute[1].level[1]", "eps_1", "5.0"), ("eps_1 = 1.0", "eps_1 = 5.0")
        )
        for command in ("ledger", "produce", "agent", "estimate", "gateway")
    },
    # people's values
    "no data": Mistake("demo --data nowhere.csv", ("nowhere.csv: ", "No such file")),
    "no header": data(f"1,home,{SECRET}\n", "line 1: none of its 3 columns is named screen"),
    "misspelt column": data(
        "id,screen,latency-ms\n1,home,2\n", "none of its 3 columns is named latency_ms", "call it step"
    ),
    "only unknown values": data(f"id,screen,latency_ms\n1,{SECRET},3\n", "column 2", "screen (6 values, home … help)"),
    "sample of few people": data(
        f"a,b\n1,{SECRET}\n2,y\n", "no column is suitable: column 1: only 2 people have a value",
        command="init --from data.csv -o new.toml",
    ),
    "sample with an impossible ε": Mistake(
        "init --from data.csv -o new.toml --eps-inf -2", ("eps_inf must be a number", "got -2.0"), data=b"a\n" + b"1\n2\n" * 99
    ),
    "survey exists": Mistake("init --from data.csv -o survey.toml", ("survey.toml: exists already; give another",)),
    "two kinds of losses": Mistake("advise --people 9 --k 5 --eps 1 --eps-inf 2", ("give exactly one of eps (one-time)",)),
    # the command line
    "misspelt command": Mistake("chek survey.toml", ("'chek'", "Did you mean 'check'?", "ldpstream --help")),
    "misspelt option": Mistake("demo --setps 3", ("No such option: --setps (Possible options: ", "--steps", "demo --help")),
    "number too small": Mistake("demo --users 0", ("'--users'", "greater than or equal to 1", "demo --help")),
    "missing argument": Mistake("check", ("Missing argument 'SURVEY'", "check --help")),
    "no folder for the output": Mistake("check survey.toml --json no/out.json", ("--json no/out.json: ", "does not exist")),
    "folder as the output": Mistake("check survey.toml --json full", ("--json full: ",)),
    "rehearsal into no folder": Mistake("rehearse survey.toml no/now.toml", ("no/now.toml: No such file or directory",)),
    "rehearsal onto itself": Mistake("rehearse survey.toml survey.toml", ("survey.toml: is the survey itself", "another file")),
    "relay without gateway": Mistake("produce survey.toml --relay http://relay.example", ("--relay needs --gateway",)),
    "relay without keys": Mistake(
        "produce survey.toml --relay http://relay.example --gateway http://gateway.example",
        ("--relay needs LDPSTREAM_GATEWAY_RELAY_KEYS_FILE",),
    ),
    "address without http": Mistake("produce survey.toml --gateway here:8081", ("[:port][/path]", "got 'here:8081'")),
    # settings and services
    "path of a gateway": Mistake("produce survey.toml --gateway http://127.0.0.1:1/é", ("[:port][/path]", "got 'http")),
    "no host": setting("GATEWAY_HOST", "a..b", "must be an address or a host's name, got 'a..b'"),
    "misspelt setting": setting("KAFAK", "x:1", "unknown setting; did you mean LDPSTREAM_KAFKA?"),
    "address without a port": setting("KAFKA", "broker", "must be host:port", "got 'broker'"),
    "no partitions": setting("PARTITIONS", "0", "got '0'", command="estimate survey.toml"),
    "secret in an address": setting("REDIS", f"redis://u:{SECRET}@host:abc/0", "redis://["),
    "unknown log level": setting("LOG_LEVEL", "loud", "'debug', 'info', 'warning' or 'error', got 'loud'"),
    "proxies by name": setting("GATEWAY_PROXIES", "proxy", "addresses or networks separated by commas", "got 'proxy'"),
    "no tokens": setting("GATEWAY_TOKENS_FILE", "none.txt", "none.txt: cannot be read: No such file"),
    "port of the gateway is taken": setting("GATEWAY_PORT", "TAKEN", "127.0.0.1:", "in use; choose a free port"),
    "port of the metrics is taken": setting(
        "METRICS_PORT", "TAKEN", "127.0.0.1:", "choose a free port", command="estimate survey.toml"
    ),
}  # fmt: skip


@pytest.fixture
def taken() -> Iterator[int]:
    """A port in use."""
    with socket.socket() as listening:
        listening.bind((LOOPBACK, 0))
        listening.listen()
        yield listening.getsockname()[1]


@pytest.fixture(autouse=True)
def same_process() -> Iterator[None]:
    """Restores what a command changes in its process: the handlers of signals and the log."""
    numbers, root = ENDING, logging.getLogger()
    handlers, before = [signal.getsignal(number) for number in numbers], (root.handlers[:], root.level)
    yield
    for number, handler in zip(numbers, handlers):
        signal.signal(number, handler)
    root.handlers[:], level = before
    root.setLevel(level)


@pytest.mark.parametrize("mistake", MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_gives_one_line_that_names_the_object_and_what_is_allowed(
    mistake: Mistake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], taken: int
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("LDPSTREAM_")]:
        monkeypatch.delenv(name)
    Path("survey.toml").write_text(DEMO.replace(*mistake.survey) if mistake.survey[0] else DEMO)
    Path("data.csv").write_bytes(mistake.data)
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    (tmp_path / "full").mkdir()
    for name, value in mistake.settings.items():
        monkeypatch.setenv(f"LDPSTREAM_{name}", value.replace("TAKEN", str(taken)))
    monkeypatch.setattr(sys, "argv", ["ldpstream", *mistake.command.split()])
    with pytest.raises(SystemExit) as ended:
        run()
    said = capfd.readouterr()
    assert ended.value.code == 2
    (line,) = said.err.splitlines()
    assert re.search(".*".join(map(re.escape, ("ldpstream: ", *mistake.told))), line), line
    assert SECRET not in line
    assert SECRET not in said.out
    assert {path: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()} == before  # no file changes
